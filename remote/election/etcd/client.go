// Package etcd is a client of etcd from version 3.4 on, over its JSON gateway (/v3/…). It has what an election and the
// memory of a leader need: leases, keys and transactions.
//
//	client := etcd.New(etcd.Config{Endpoints: []string{"http://a:2379", "http://b:2379"}})
//	lease, ttl, err := client.Grant(ctx, 5*time.Second)
//	created, err := client.Create(ctx, "/genv/lab", []byte("jump-1"), lease)
//
// Each call asks the member that answered last, and then the others in turn, each for a second. etcd's own client would
// make each start of the program slower. There are no watches: ask again to see changes.
package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Config says how to reach a cluster.
type Config struct {
	Endpoints []string    // URLs of the members' client ports, such as http://10.0.0.1:2379
	TLS       *tls.Config // for https; nil for the system's authorities
	User      string      // empty for a cluster without users
	Password  string
}

// Gateway asks a cluster. It is safe for concurrent use.
type Gateway struct {
	config Config
	http   *http.Client

	current atomic.Int64 // the index of the member to ask first
	token   atomic.Value // a string, of the user; empty without a login
}

// memberTimeout is how long to wait for one member. So three can be asked before a lease ends.
const memberTimeout = time.Second

// maxAnswer bounds an answer, in bytes. Answers are lists of keys that fit into etcd's requests.
const maxAnswer = 64 << 20

// New returns a Gateway. It connects at the first call.
func New(config Config) *Gateway {
	dialer := &net.Dialer{Timeout: memberTimeout, KeepAlive: 5 * time.Second}
	return &Gateway{config: config, http: &http.Client{Transport: &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: config.TLS, TLSHandshakeTimeout: memberTimeout,
		MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute,
	}, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // an error here: a redirect would get the password
	}}}
}

// Close closes idle connections.
func (c *Gateway) Close() { c.http.CloseIdleConnections() }

// MemberError is the error that a member answered.
type MemberError struct {
	Code    int // of gRPC
	Message string
}

// Error is etcd's message and, if flags may be the cause, which ones.
func (e *MemberError) Error() string {
	for said, hint := range refusals {
		if strings.Contains(e.Message, said) {
			return e.Message + " (" + hint + ")"
		}
	}
	return e.Message
}

const (
	codeInvalid         = 3
	codeDeadline        = 4
	codeNotFound        = 5
	codeExhausted       = 8
	codeUnavailable     = 14
	codeUnauthenticated = 16
)

// another reports whether another member may know better.
func (e *MemberError) another() bool {
	switch e.Code {
	case 0, codeDeadline, codeUnavailable:
		return true
	case codeExhausted: // also for too large requests, and for etcd's space
		return strings.Contains(e.Message, "too many requests")
	}
	return false
}

// expired reports whether a new token may help. With JWT, each change of a user or a role ends all tokens.
func (e *MemberError) expired() bool {
	return e.Code == codeUnauthenticated || e.Code == codeInvalid &&
		strings.Contains(e.Message, "revision of auth store is old")
}

// Refused reports whether etcd answered and refused: no space, a wrong password, or no permission.
func Refused(err error) bool {
	refused, ok := errors.AsType[*MemberError](err)
	return ok && !refused.another()
}

// noSpace is etcd's message when its space is used up. The code of gRPC stands for other limits, too.
const noSpace = "database space exceeded"

// IsFull reports whether a member refused a request because etcd's space is used up.
func IsFull(err error) bool {
	refused, ok := errors.AsType[*MemberError](err)
	return ok && refused.Code == codeExhausted && strings.Contains(refused.Message, noSpace)
}

// call asks the cluster. After an error that is Refused nothing was done; after others that is unknown. It takes at
// most a second for each member, and up to four times as long if the token is missing or has expired.
func (c *Gateway) call(ctx context.Context, path string, request, answer any) error {
	for again := false; ; again = true {
		token, err := c.login(ctx)
		if err == nil {
			err = c.try(ctx, path, token, request, answer)
		}
		refused, ok := errors.AsType[*MemberError](err)
		expired := ok && refused.expired() && c.config.User != ""
		if err != nil && (expired || !ok || refused.another()) {
			// A cluster restored from a backup doesn't refuse earlier tokens: it waits for their revision.
			c.token.Store("")
		}
		if !expired || again {
			return err
		}
	}
}

func (c *Gateway) login(ctx context.Context) (string, error) {
	token, _ := c.token.Load().(string)
	if c.config.User == "" || token != "" {
		return token, nil
	}
	var answer struct{ Token string }
	if err := c.try(ctx, "/v3/auth/authenticate", "", c.credentials(), &answer); err != nil {
		return "", fmt.Errorf("log in to etcd as %s: %w", c.config.User, err)
	}
	c.token.Store(answer.Token)
	return answer.Token, nil
}

func (c *Gateway) credentials() map[string]string {
	return map[string]string{"name": c.config.User, "password": c.config.Password}
}

func (c *Gateway) try(ctx context.Context, path, token string, request, answer any) error {
	first, members := c.current.Load(), int64(len(c.config.Endpoints))
	var failed []error
	for i := range members {
		at, asked := (first+i)%members, time.Now()
		err := c.ask(ctx, c.config.Endpoints[at], path, token, request, answer)
		if err == nil || Refused(err) {
			c.current.Store(at)
			return err
		}
		failed = append(failed, err)
		if time.Since(asked) >= memberTimeout/2 { // the next call begins with another member
			c.current.CompareAndSwap(at, (at+1)%members)
		}
		if ctx.Err() != nil {
			break
		}
	}
	texts := make([]string, len(failed))
	for i, err := range failed {
		texts[i] = err.Error()
	}
	return text.Worded("etcd doesn't answer: "+strings.Join(texts, "; "), failed...)
}

func (c *Gateway) ask(ctx context.Context, endpoint, path, token string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	status, data, err := c.post(ctx, endpoint+path, token, request)
	if err == nil {
		err = decode(status, data, answer)
	}
	if err == nil || Refused(err) {
		return err
	}
	return c.explain(endpoint, err)
}

func (c *Gateway) post(ctx context.Context, url, token string, request any) (status int, data []byte, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return 0, nil, err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	post.Header.Set("Content-Type", "application/json")
	if token != "" {
		post.Header.Set("Authorization", token)
	}
	response, err := c.http.Do(post)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	data, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return response.StatusCode, data, err
}

// Address is the content of a URL such as etcd://a:2379,b:2379/genv/lab.
type Address struct {
	Endpoints []string // such as http://a:2379, or https:// for etcds
	Key       string   // /genv/lab
	TLS       bool
}

const (
	defaultPort = "2379"
	maxKey      = 256 // bytes of a key: hosts refuse a source of more than 512
)

// ParseURL parses a URL: etcd://, or etcds:// for TLS, members separated by commas, and a key.
func ParseURL(url string) (Address, error) {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok || scheme != "etcd" && scheme != "etcds" {
		return Address{}, errors.New("write etcd://HOST:2379/genv/lab, or etcds:// for TLS")
	}
	members, key, _ := strings.Cut(rest, "/")
	a := Address{Key: "/" + key, TLS: scheme == "etcds"}
	switch {
	case strings.Contains(rest, "@"): // a password may have a slash
		return Address{}, errors.New("a user and a password don't belong there, since every user of this " +
			"machine sees them")
	case strings.ContainsAny(key, "?#%\x00 \n") || len(key) > maxKey:
		return Address{}, fmt.Errorf("a key has at most %d bytes, and none of ?#%% and space", maxKey)
	case path.Clean(a.Key) == "/":
		return Address{}, errors.New("a key such as /genv/lab has to follow the members")
	case path.Clean(a.Key) != a.Key:
		return Address{}, fmt.Errorf("write the key as %s", path.Clean(a.Key))
	}
	for _, m := range strings.Split(members, ",") {
		endpoint, err := endpointOf(m, a.TLS)
		if err != nil {
			return Address{}, err
		}
		a.Endpoints = append(a.Endpoints, endpoint)
	}
	return a, nil
}

func endpointOf(member string, tls bool) (string, error) {
	host, port, err := net.SplitHostPort(member)
	if err != nil && !strings.Contains(member, ":") {
		host, port, err = member, defaultPort, nil
	}
	if number, errPort := strconv.ParseUint(port, 10, 16); err != nil || host == "" ||
		strings.ContainsAny(host, "/?#% ") || errPort != nil || number == 0 {
		return "", fmt.Errorf("%q is not an address and a port, such as etcd-1.lab:2379 or [fd00::1]:2379", member)
	}
	scheme := "http://"
	if tls {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port), nil
}
