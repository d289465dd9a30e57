// Package sshclient runs commands on hosts over SSH (a remote.Runner), with OpenSSH's configuration, keys, jump hosts
// and host key rules, on connections that stay open.
//
//	client := sshclient.New(sshclient.Options{})
//	defer client.Close()
//	output, err := client.Run(ctx, host, host.Genv("usage", "snapshot"))
//
// Every error is a *remote.Error. A host with an unknown key is refused, even with `StrictHostKeyChecking no` in
// ssh_config: only accept-new adds keys, and only Options.InsecureHostKeys accepts all. The package tries once;
// remote/agent retries. A jump host's failure is remembered for a while, for all hosts behind it.
//
// It provides no terminal, forwards nothing, and never asks for a password. It may run ssh(1) for commands, which also
// asks nothing and accepts no unknown host key, and ends together with its command and children.
//
// It ends no program on the host: a closed connection only ends the program's stdin.
package sshclient

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/auth"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/remote/sshclient/hostkeys"
	"github.com/seed-3119e985/genv/snapshot/nss"
)

// Options of a Client. The zero value behaves like ssh(1), with timeouts and limits.
type Options struct {
	// ConnectTimeout covers name resolution, TCP and key exchange, per hop; 0: from ssh_config, or else 10 s.
	ConnectTimeout time.Duration
	LoginTimeout   time.Duration // from there to the first session; 0: a minute; at least ConnectTimeout
	CommandTimeout time.Duration // 0: 30 s. The context's deadline applies too

	ConfigFile string // as ssh -F: replaces the user's and the system's; "none" for none
	OpenSSH    string // resolves ssh_config; empty: ssh in PATH; "none": none

	MaxStdout int64 // in bytes; 0: 32 MiB. A command that writes more is closed

	// Prompt asks for a key's passphrase on a terminal; nil without one.
	Prompt           func(question string) ([]byte, error)
	InsecureHostKeys bool          // accept any host key, with a warning for each host
	KeepAlive        time.Duration // default for ssh_config without ServerAliveInterval; 0: 15 s
	Log              zerolog.Logger
}

func (o Options) withDefaults() Options {
	o.CommandTimeout = positive(o.CommandTimeout, 30*time.Second)
	o.LoginTimeout = positive(o.LoginTimeout, time.Minute)
	o.MaxStdout = positive(o.MaxStdout, 32<<20)
	o.KeepAlive = positive(o.KeepAlive, 15*time.Second)
	return o
}

func positive[T ~int | ~int64](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}

// Client runs commands over connections that it keeps open, safely for concurrent use.
type Client struct {
	options  Options
	resolver *config.Resolver
	keyring  *auth.Keyring
	hostKeys *hostkeys.Cache
	names    *nss.Resolver
	dials    sync.Map // of chan struct{}: login slots by destination

	lifetime context.Context // ends with Close, and ends all connections
	end      context.CancelCauseFunc
	running  sync.WaitGroup // all goroutines of the client

	greeted map[endpoint]net.Conn // by probes, for later logins; guarded by mu

	mu     sync.Mutex
	conns  map[endpoint]*sharedConn
	closed bool
}

var _ remote.Runner = (*Client)(nil)

var (
	errClosed       = errors.New("the SSH client is closed")
	errDisconnected = errors.New("it was given up")
)

// New returns a Client that isn't connected yet.
func New(o Options) *Client {
	o = o.withDefaults()
	c := &Client{
		options:  o,
		resolver: config.New(config.ResolverOptions{File: o.ConfigFile, SSH: o.OpenSSH, Timeout: o.ConnectTimeout}),
		keyring:  auth.NewKeyring(o.Prompt, o.Log),
		hostKeys: hostkeys.NewCache(o.Log),
		names:    nss.NewResolver(),
		conns:    map[endpoint]*sharedConn{},
		greeted:  map[endpoint]net.Conn{},
	}
	c.lifetime, c.end = context.WithCancelCause(context.Background())
	return c
}

// Close ends all connections and waits for the client's goroutines. Running commands return an error.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	conns := c.conns
	c.conns = map[endpoint]*sharedConn{}
	c.mu.Unlock()
	c.end(errClosed)
	c.keyring.Close() // ends a handshake that waits for an agent
	for _, p := range conns {
		p.close(func(l *connection) { l.close(errClosed) })
	}
	c.running.Wait()
}

// spawn runs f in a goroutine that Close waits for; false after Close.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.running.Go(f)
	return true
}

func (c *Client) shared(e endpoint) (*sharedConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, &remote.Error{Class: remote.Cancelled, Err: errClosed}
	}
	p := c.conns[e]
	if p == nil {
		p = &sharedConn{client: c, endpoint: e}
		c.conns[e] = p
	}
	return p, nil
}

func (c *Client) endpointOf(h remote.Host) endpoint {
	return endpoint{openSSH: h.OpenSSH, Lookup: config.Lookup{
		Host: h.Name, HostName: h.Address, User: h.User, Port: h.Port,
	}}
}

// Forget closes the connections to hosts that left the fleet, and of hosts behind them, once no command runs.
func (c *Client) Forget(hosts ...remote.Host) {
	for _, h := range hosts {
		c.mu.Lock()
		e := c.endpointOf(h)
		p := c.conns[e]
		delete(c.conns, e)
		c.mu.Unlock()
		if p != nil {
			p.close((*connection).retire)
		}
	}
}

// Disconnect closes the connection to a host. The next command reconnects.
func (c *Client) Disconnect(h remote.Host) {
	if p := c.existing(h); p != nil {
		p.disconnect()
	}
}

func (c *Client) existing(h remote.Host) *sharedConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conns[c.endpointOf(h)]
}

// Way is how a host is reached, as far as known without connecting.
type Way struct {
	Settings  config.HostConfig
	Addresses []netip.Addr // of the host's name; none if another machine or ssh(1) resolves it
	OpenSSH   bool         // through ssh(1)
}

// Direct says whether a plain TCP connection leads to the host.
func (w Way) Direct() bool {
	return !w.OpenSSH && len(w.Settings.ProxyJump) == 0 && w.Settings.ProxyCommand == ""
}

// Resolve caches a host's configuration, which may run ssh(1).
func (c *Client) Resolve(ctx context.Context, h remote.Host) {
	_, _ = c.resolve(ctx, c.endpointOf(h)) // connecting returns the error
}

// Way reads the configuration and resolves the host's name. The error's class is Configuration, or Unreachable for a
// name without an address, or Timeout; for these two there are settings.
func (c *Client) Way(ctx context.Context, h remote.Host) (Way, error) {
	settings, err := c.resolve(c.lifetime, c.endpointOf(h))
	w := Way{Settings: settings, OpenSSH: h.OpenSSH}
	if h.OpenSSH {
		return w, nil // ssh reports configuration errors
	}
	if err != nil || !w.Direct() {
		return w, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.connectTimeout(settings))
	defer cancel()
	w.Addresses, err = c.addresses(ctx, settings)
	switch {
	case err == nil:
		return w, nil
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return w, stopped(ctx, "while resolving "+settings.HostName)
	}
	return w, noAddress(settings.HostName, err)
}

// Shown returns the machine that proved its host key before its login failed with err.
func Shown(err error) (remote.Peer, bool) {
	if shown, ok := errors.AsType[*loginError](err); ok {
		return shown.peer, shown.peer.Known()
	}
	return remote.Peer{}, false
}

// Peer returns the machine of the host's last connection; false if there was none.
func (c *Client) Peer(h remote.Host) (remote.Peer, bool) {
	if conn := c.lastConnection(h); conn != nil {
		return conn.peer, conn.peer.Known()
	}
	return remote.Peer{}, false
}

// LoginTook is how long the last login and first session took; 0 if unknown.
func (c *Client) LoginTook(h remote.Host) time.Duration {
	conn := c.lastConnection(h)
	if conn == nil {
		return 0
	}
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.took
}

// lastConnection may have ended.
func (c *Client) lastConnection(h remote.Host) *connection {
	p := c.existing(h)
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn
}

func peerOf(t resolvedEndpoint, conn net.Conn, key ssh.PublicKey) remote.Peer {
	if key == nil {
		return remote.Peer{}
	}
	p := remote.Peer{Address: strings.ToLower(t.address()), HostKey: ssh.FingerprintSHA256(key)}
	switch {
	case len(t.ProxyJump) > 0:
		p.Through = "jump " + strings.Join(t.ProxyJump, ",")
	case t.ProxyCommand != "":
		p.Through = "command " + t.ProxyCommand
	default:
		p.Address = conn.RemoteAddr().String()
	}
	return p
}

func lastHop(s config.HostConfig) (endpoint, error) {
	last := len(s.ProxyJump) - 1
	q, err := config.ParseHop(s.ProxyJump[last])
	if err != nil {
		return endpoint{}, &remote.Error{Class: remote.Configuration, Err: err}
	}
	return endpoint{Lookup: q, via: strings.Join(s.ProxyJump[:last], ",")}, nil
}
