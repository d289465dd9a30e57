package web

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/quota"
)

const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// userHeaders name the user, in oauth2-proxy and others.
var userHeaders = []string{"X-Forwarded-User", "X-Auth-Request-User"}

type contextKey struct{}

func userOf(r *http.Request) snapshot.Username {
	user, _ := r.Context().Value(contextKey{}).(snapshot.Username)
	return user
}

func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", contentPolicy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		if !AnswersTo(r.Host, s.options.Hosts) {
			s.refuse(w, r, http.StatusMisdirectedRequest, "This server doesn't answer to this name. The controller's "+
				"administrator can add it with --web-host.")
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			header.Set("Allow", "GET, HEAD")
			s.refuse(w, r, http.StatusMethodNotAllowed, "This page only shows: GET and HEAD.")
			return
		}
		switch user, status := s.authenticate(r); status {
		case http.StatusOK:
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, user)))
		case http.StatusBadRequest:
			s.refuse(w, r, status, "The proxy's headers name more than one user.")
		default:
			s.refuse(w, r, status, demand(header, status))
		}
	})
}

// AnswersTo accepts Host headers with names of loopback, or others. Without that, any web site could read the page
// through its visitors' browsers (DNS rebinding).
func AnswersTo(host string, others []string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if address, err := netip.ParseAddr(name); err == nil && address.Unmap().IsLoopback() {
		return true
	}
	return name == "localhost" || slices.ContainsFunc(others, func(h string) bool {
		return strings.EqualFold(strings.Trim(h, "[]"), name)
	})
}

func (s *server) authenticate(r *http.Request) (snapshot.Username, int) {
	switch {
	case s.options.Access != nil:
		return s.options.Access.login(r)
	case s.options.Proxied:
		return headerUser(r.Header)
	}
	return "", http.StatusOK
}

func (s *server) knowsUsers() bool {
	return s.options.Proxied || s.options.Access != nil && s.options.Access.Demands().Passwords
}

// headerUser is the proxy's user. It refuses two names, as one may come from the browser.
func headerUser(header http.Header) (snapshot.Username, int) {
	var user string
	for _, name := range userHeaders {
		for _, value := range header.Values(name) {
			if value == "" {
				continue
			}
			if user != "" && value != user || len(value) > maxUserName {
				return "", http.StatusBadRequest
			}
			user = value
		}
	}
	return snapshot.Username(user), http.StatusOK
}

// Bounds against guessing passwords.
const (
	maxWaiting  = 32 // checks per client
	maxRight    = 1024
	rightFor    = 10 * time.Minute
	maxUserName = 256 // bytes
)

// Protect requires a password if the file has users, except for /-/…, which says nothing about people.
func (a *Access) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, status := a.login(r); status != http.StatusOK {
			http.Error(w, demand(w.Header(), status), status)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func demand(header http.Header, status int) string {
	if status == http.StatusServiceUnavailable {
		header.Set("Retry-After", "2")
		return "Too many logins at a time: try again."
	}
	header.Set("WWW-Authenticate", `Basic realm="genv", charset="UTF-8"`)
	return "A user name and a password are required."
}

func (a *Access) login(r *http.Request) (snapshot.Username, int) {
	if a.current().hashes == nil || strings.HasPrefix(r.URL.Path, "/-/") {
		return "", http.StatusOK
	}
	user, password, ok := r.BasicAuth()
	if !ok || len(user) > maxUserName {
		return "", http.StatusUnauthorized
	}
	switch right, err := a.check(r.Context(), clientOf(r.RemoteAddr), user, password); {
	case errors.Is(err, quota.ErrBusy):
		return "", http.StatusServiceUnavailable
	case err != nil || !right:
		return "", http.StatusUnauthorized
	}
	return snapshot.Username(user), http.StatusOK
}

// clientOf is an address or an IPv6 network, as a client may have all of that.
func clientOf(remote string) string {
	address, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	ip := address.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	network, _ := ip.Prefix(64) // an IPv6 address has one
	return network.String()
}

// check compares passwords, as slowly for unknown users. It remembers right ones for minutes, unless the files change.
// After an error nothing was checked.
func (a *Access) check(ctx context.Context, client, user, password string) (bool, error) {
	if _, _, known := a.lookUp(user, password); known {
		return true, nil
	}
	done, err := a.turns.Take(ctx, client)
	if err != nil {
		return false, err
	}
	defer done()
	hash, id, known := a.lookUp(user, password)
	if known { // a page makes several requests at once
		return true, nil
	}
	right := bcrypt.CompareHashAndPassword(hash, []byte(password)) == nil
	a.mu.Lock()
	defer a.mu.Unlock()
	right = right && bytes.Equal(a.rules.hashes[user], hash) // nil for an unknown user
	if right {
		if len(a.right) >= maxRight {
			clear(a.right)
		}
		a.right[id] = a.now().Add(rightFor)
	}
	return right, nil
}

func (a *Access) lookUp(user, password string) (hash []byte, id [sha256.Size]byte, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refresh()
	hash, exists := a.rules.hashes[user]
	if !exists {
		hash = a.rules.slowest
	}
	mac := hmac.New(sha256.New, a.key)
	fmt.Fprintf(mac, "%d %s %s ", len(user), user, hash)
	mac.Write([]byte(password))
	mac.Sum(id[:0])
	until, known := a.right[id]
	return hash, id, known && a.now().Before(until)
}
