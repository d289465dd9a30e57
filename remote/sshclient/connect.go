package sshclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/auth"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const defaultConnectTimeout = 10 * time.Second // if neither the caller nor ssh_config sets one

func (c *Client) connectTimeout(s config.HostConfig) time.Duration {
	return positive(positive(c.options.ConnectTimeout, s.ConnectTimeout), defaultConnectTimeout)
}

type resolvedEndpoint struct {
	endpoint
	config.HostConfig
	chain  []endpoint          // itself, after the endpoints reached through it
	within func(time.Duration) // limits the rest of the attempt
}

func (t resolvedEndpoint) address() string { return net.JoinHostPort(t.HostName, strconv.Itoa(t.Port)) }

const maxJumps = 16

// connect makes a connection. Waiting for a slot or a jump host isn't part of its timeout.
func (c *Client) connect(e endpoint, chain []endpoint) (*connection, error) {
	if slices.Contains(chain, e) || len(chain) > maxJumps {
		return nil, remote.Errorf(remote.Configuration, "ProxyJump of %s leads back to itself", e.Host)
	}
	started := time.Now()
	settings, err := c.resolve(c.lifetime, e)
	if err != nil {
		return nil, err
	}
	t := resolvedEndpoint{endpoint: e, HostConfig: settings, chain: append(slices.Clip(chain), e)}
	for {
		ctx, cancel := context.WithCancelCause(c.lifetime)
		var after atomic.Int64
		timer := time.AfterFunc(time.Hour, func() { cancel(notWithin(time.Duration(after.Load()))) })
		timer.Stop()
		t.within = func(d time.Duration) { after.Store(int64(d)); timer.Reset(d) }
		l, err := c.login(ctx, t)
		timer.Stop()
		late := errors.Is(context.Cause(ctx), context.DeadlineExceeded)
		cancel(nil)
		if err == nil || !late || !c.keyring.AnsweredSince(started) {
			return l, err
		}
		started = time.Now() // the user took that long to type a passphrase
	}
}

func (c *Client) resolve(ctx context.Context, e endpoint) (config.HostConfig, error) {
	settings, err := c.resolver.Resolve(ctx, e.Lookup)
	if err != nil {
		class := remote.Configuration
		if errors.Is(err, context.DeadlineExceeded) || c.lifetime.Err() != nil {
			class = remote.Timeout
		}
		failed := remote.Errorf(class, "%s: %w", e.Host, err)
		if why, ok := errors.AsType[*config.Error](err); ok && why.NeedsOpenSSH() {
			failed.Next = openSSHStep
		}
		return settings, failed
	}
	if e.via != "" {
		settings.ProxyJump, settings.ProxyCommand = strings.Split(e.via, ","), ""
	}
	return settings, nil
}

func (c *Client) login(ctx context.Context, t resolvedEndpoint) (*connection, error) {
	release, err := c.turn(ctx, t.via+" "+t.address(), dialsPerAddress)
	if err != nil {
		return nil, stopped(ctx, "while waiting to connect to "+t.HostName)
	}
	defer release()
	conn, releaseJump, err := c.transport(ctx, t)
	if err != nil {
		return nil, err
	}
	l, err := c.handshake(ctx, t, conn)
	releaseJump() // it limits logins, not connections
	if err != nil {
		_ = conn.Close() // the handshake's error says more
		return nil, err
	}
	return l, nil
}

// handshake exchanges keys and logs in. Only closing the connection stops that, when ctx ends.
func (c *Client) handshake(ctx context.Context, t resolvedEndpoint, conn net.Conn) (*connection, error) {
	began := time.Now()
	check, err := c.hostKeyCheck(ctx, t)
	if err != nil {
		return nil, err
	}
	files := auth.Files(t.HostConfig)
	stamp := folder.Stamp(files...)
	login := c.keyring.Keys(t.HostConfig).Login()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	said := ""
	atMost := max(c.options.LoginTimeout, c.connectTimeout(t.HostConfig))
	over, shown := &afterPreface{Conn: conn}, &loginKey{check: check, known: func() { t.within(atMost) }}
	sshConn, channels, requests, err := ssh.NewClientConn(over, t.address(), &ssh.ClientConfig{
		Config:            ssh.Config{KeyExchanges: t.KexAlgorithms, Ciphers: t.Ciphers, MACs: t.MACs},
		User:              t.User,
		AuthCallback:      login.Next,
		HostKeyCallback:   shown.callback,
		HostKeyAlgorithms: check.algorithms,
		ClientVersion:     "SSH-2.0-genv",
		BannerCallback: func(banner string) error {
			if login.Offered() > 0 { // earlier banners appear at every login
				said = cmp.Or(text.LastLine(banner), said)
			}
			return nil
		},
	})
	if err != nil {
		if p, ok := conn.(*proxyConn); ok {
			err = p.explain(err, check.seen)
		}
		failed := &loginError{error: handshakeError(ctx, t, check, login, said, err), peer: peerOf(t, conn, check.key)}
		if remote.ClassOf(failed) == remote.Auth {
			failed.outdated = func() bool { return folder.Stamp(files...) != stamp }
		}
		return nil, failed
	}
	if !stop() { // too late: the connection is being closed
		_ = sshConn.Close()
		return nil, stopped(ctx, "while logging in to "+t.HostName)
	}
	shown.loggedIn()
	link := ownLogin{&ssh.Client{Conn: sshConn}, channels, requests, &over.heard}
	l, err := c.newConnection(t.HostConfig, link)
	if err == nil {
		l.peer = peerOf(t, conn, check.key)
		if !c.keyring.AnsweredSince(began) {
			l.took = time.Since(began)
		}
	}
	return l, err
}

type loginError struct {
	error
	peer     remote.Peer // the machine, if it had proved its host key
	outdated func() bool // the cause (files or a socket) changed, so a retry makes sense; nil: as for error
}

func (e *loginError) Unwrap() error { return e.error }

// Outdated implements remote.Outdated.
func (e *loginError) Outdated() bool {
	if e.outdated == nil {
		return remote.Outdated(e.error)
	}
	return e.outdated()
}

func notWithin(d time.Duration) error {
	return text.Worded("not within "+d.String(), context.DeadlineExceeded)
}

func (c *Client) addresses(ctx context.Context, s config.HostConfig) ([]netip.Addr, error) {
	family := cmp.Or(map[string]string{"inet": "ip4", "inet6": "ip6"}[s.AddressFamily], "ip")
	return c.names.Addresses(ctx, family, s.HostName)
}

func noAddress(name string, err error) *remote.Error {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && !dns.IsNotFound {
		return remote.Errorf(remote.Unreachable, "the name %s can't be looked up: %w (%w)", name, err,
			remote.ErrNoNames).
			WithNext("look at /etc/resolv.conf of this machine and at the servers in it: the host may be up; " +
				"`getent hosts NAME` shows what this machine finds")
	}
	return remote.Errorf(remote.Unreachable, "the address of %s: %w", name, err).
		WithNext("correct the name, or give the host an `address:` in hosts.yaml or a HostName in ssh_config; " +
			"`getent hosts NAME` shows what this machine finds")
}

// stagger is the delay before the next address is tried too (RFC 8305, section 5).
const stagger = 250 * time.Millisecond

// dialHost connects to the first address that answers. The error is the first one, of class Configuration without an
// address for BindAddress or BindInterface.
func (c *Client) dialHost(ctx context.Context, s config.HostConfig) (won net.Conn, failed error) {
	type result struct {
		conn net.Conn
		err  error
	}
	left, err := c.addresses(ctx, s)
	if err != nil {
		return nil, noAddress(s.HostName, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	results, running := make(chan result), 0
	begin := time.NewTimer(0)
	defer begin.Stop()
	for won == nil && (len(left) > 0 || running > 0) {
		select {
		case <-begin.C:
			if len(left) == 0 {
				continue
			}
			to := netip.AddrPortFrom(left[0], uint16(s.Port))
			left = left[1:]
			running++
			go func() {
				conn, err := c.dialFrom(ctx, s, to)
				results <- result{conn, err}
			}()
			begin.Reset(stagger)
		case r := <-results:
			running--
			won, failed = r.conn, cmp.Or(failed, r.err)
			begin.Reset(0)
		}
	}
	cancel()
	for ; running > 0; running-- {
		if r := <-results; r.conn != nil {
			_ = r.conn.Close() // too late
		}
	}
	if won != nil {
		return won, nil
	}
	return nil, failed
}

func (c *Client) dialFrom(ctx context.Context, s config.HostConfig, to netip.AddrPort) (net.Conn, error) {
	var dialer net.Dialer
	if s.BindAddress != "" || s.BindInterface != "" {
		from, err := c.source(ctx, s, to.Addr())
		if err != nil {
			return nil, remote.Errorf(remote.Configuration, "no address to connect from: %w", err)
		}
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	return dialer.DialContext(ctx, "tcp", to.String())
}

// source returns BindAddress, or BindInterface's first address, loopback and link-local last, like ssh.
func (c *Client) source(ctx context.Context, s config.HostConfig, to netip.Addr) (netip.Addr, error) {
	if s.BindAddress != "" {
		family := "ip6"
		if to.Is4() {
			family = "ip4"
		}
		found, err := c.names.Addresses(ctx, family, s.BindAddress)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("BindAddress %q in ssh_config: %w", s.BindAddress, err)
		}
		return found[0], nil
	}
	var local netip.Addr
	link, err := net.InterfaceByName(s.BindInterface)
	if err != nil {
		return local, fmt.Errorf("BindInterface %q in ssh_config: %w", s.BindInterface, err)
	}
	addresses, err := link.Addrs()
	for _, a := range addresses {
		prefix, _ := netip.ParsePrefix(a.String())
		switch from := prefix.Addr(); {
		case !from.IsValid() || from.Is4() != to.Is4():
		case !from.IsLoopback() && !from.IsLinkLocalUnicast():
			return from, nil
		case !local.IsValid():
			local = from.WithZone(map[bool]string{true: link.Name}[from.Is6() && from.IsLinkLocalUnicast()])
		}
	}
	if !local.IsValid() {
		err = fmt.Errorf("BindInterface %q in ssh_config has no address of the family of %s", s.BindInterface, to)
	}
	return local, err
}
