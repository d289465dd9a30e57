package sshclient

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/auth"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/remote/sshclient/hostkeys"
)

// Options of a Client. The zero value is what ssh(1) would do, with bounds.
type Options struct {
	// ConnectTimeout is the one deadline over name resolution, jumps, TCP,
	// handshake and login; 0 is ssh_config's ConnectTimeout, or else 10 s.
	ConnectTimeout time.Duration
	// CommandTimeout is the deadline of a command from its start; 0 is 30 s.
	// A context's deadline holds as well.
	CommandTimeout time.Duration

	// User logs in everywhere with this name, as ssh -l; jump hosts excepted.
	User string
	// ConfigFile is ssh -F: a file instead of the user's and the system's
	// ssh_config, "none" for no file.
	ConfigFile string
	// OpenSSH is the ssh program that is asked for its configuration; empty is
	// the one in PATH, "none" is to do without.
	OpenSSH string

	// MaxStdout and MaxStderr bound what is kept of a command's output, in
	// bytes; 0 is 64 MiB and 256 KiB. Beyond it the command is given up.
	MaxStdout, MaxStderr int64

	// DialsPerDestination and DialsPerBastion bound the logins under way to one
	// address and through one jump host; 0 is 8 and 32 (sshd_config(5),
	// MaxStartups).
	DialsPerDestination, DialsPerBastion int

	// Prompt asks for a key's passphrase on a terminal; nil where there is none.
	Prompt func(question string) ([]byte, error)
	// InsecureHostKeys takes every host key, with a warning for each host.
	InsecureHostKeys bool
	// KeepAlive is how often an idle connection is tried where ssh_config has
	// no ServerAliveInterval; 0 is 15 s.
	KeepAlive time.Duration
	Log       zerolog.Logger
}

func (o Options) withDefaults() Options {
	o.CommandTimeout = positive(o.CommandTimeout, 30*time.Second)
	o.MaxStdout = positive(o.MaxStdout, 64<<20)
	o.MaxStderr = positive(o.MaxStderr, 256<<10)
	o.DialsPerDestination = positive(o.DialsPerDestination, 8)
	o.DialsPerBastion = positive(o.DialsPerBastion, 32)
	o.KeepAlive = positive(o.KeepAlive, 15*time.Second)
	return o
}

func positive[T ~int | ~int64](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}

// Client runs commands over connections that it keeps. It is safe for
// concurrent use.
type Client struct {
	options  Options
	resolver *config.Resolver
	keyring  *auth.Keyring
	hostKeys *hostkeys.Store
	dials    *bounds

	lifetime context.Context // ends with Close; connections live in it
	end      context.CancelCauseFunc
	running  sync.WaitGroup // every goroutine of ours

	mu     sync.Mutex
	peers  map[endpoint]*peer
	closed bool
}

var _ remote.Runner = (*Client)(nil)

var (
	errClosed       = errors.New("the SSH client is closed")
	errDisconnected = errors.New("it was given up")
)

// New connects to nothing yet.
func New(o Options) (*Client, error) {
	if o.User != "" {
		if err := config.Valid(config.Query{Host: "host", User: o.User}); err != nil {
			return nil, &remote.Error{Class: remote.Configuration, Err: err}
		}
	}
	o = o.withDefaults()
	c := &Client{
		options:  o,
		resolver: config.New(config.ResolverOptions{File: o.ConfigFile, SSH: o.OpenSSH}),
		keyring:  auth.NewKeyring(o.Prompt, o.Log),
		hostKeys: hostkeys.NewStore(o.Log),
		dials:    newBounds(),
		peers:    map[endpoint]*peer{},
	}
	c.lifetime, c.end = context.WithCancelCause(context.Background())
	return c, nil
}

// Close ends every connection and waits for all that runs on them; what was
// running answers with an error. It returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	peers := c.peers
	c.peers = map[endpoint]*peer{}
	c.mu.Unlock()
	c.end(errClosed)
	c.keyring.Close() // frees a handshake that waits for an agent
	for _, p := range peers {
		p.close()
	}
	c.running.Wait()
	return nil
}

// spawn runs f as one of the goroutines that Close waits for; it tells whether
// the client was still open.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.running.Go(f)
	return true
}

// peer is the one that stands for an endpoint.
func (c *Client) peer(e endpoint) (*peer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, &remote.Error{Class: remote.Cancelled, Err: errClosed}
	}
	p := c.peers[e]
	if p == nil {
		p = &peer{client: c, endpoint: e}
		c.peers[e] = p
	}
	return p, nil
}

// endpointOf is where a host's commands go.
func (c *Client) endpointOf(h remote.Host) endpoint {
	user := h.User
	if c.options.User != "" {
		user = c.options.User
	}
	return endpoint{Query: config.Query{Host: h.Name, HostName: h.Address, User: user, Port: h.Port}}
}
