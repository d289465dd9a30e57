package sshclient

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// Way is how a host is reached, as far as that is known without a connection to it.
type Way struct {
	Settings config.HostConfig
	// Addresses are those of the host's name. They are empty behind a jump host or a
	// ProxyCommand, where another machine resolves the name, and where ssh(1) does.
	Addresses []netip.Addr
	OpenSSH   bool // reached by running ssh(1)
}

// Direct says whether a plain TCP connection leads to the host.
func (w Way) Direct() bool {
	return !w.OpenSSH && len(w.Settings.ProxyJump) == 0 && w.Settings.ProxyCommand == ""
}

// Resolve reads the configuration of a host. That may take a run of ssh(1), of which only so many run at a time.
func (c *Client) Resolve(ctx context.Context, h remote.Host) {
	_, _ = c.resolve(ctx, c.endpointOf(h)) // who connects gets the error
}

// Way reads the configuration and resolves the host's name. Its error is of the class Configuration, of the class
// Unreachable if the name has no address, or Timeout. With the latter two, the settings are known.
func (c *Client) Way(ctx context.Context, h remote.Host) (Way, error) {
	settings, err := c.resolve(c.lifetime, c.endpointOf(h))
	w := Way{Settings: settings, OpenSSH: h.OpenSSH}
	if h.OpenSSH {
		return w, nil // ssh itself says what is wrong with the configuration
	}
	if err != nil || !w.Direct() {
		return w, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.connectTimeout(settings))
	defer cancel()
	addresses, err := c.addresses(ctx, settings)
	for _, a := range addresses {
		w.Addresses = append(w.Addresses, a.Addr())
	}
	switch {
	case err == nil:
		return w, nil
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return w, stopped(ctx, "while resolving "+settings.HostName)
	}
	return w, noAddress(settings.HostName, err)
}

// Shown is the machine that refused or did not finish a login, if the error is of a login
// that failed after the machine had shown its host key.
func Shown(err error) (remote.Peer, bool) {
	shown, ok := errors.AsType[*shownKey](err)
	if !ok {
		return remote.Peer{}, false
	}
	return shown.peer, shown.peer.Known()
}

// Peer is the machine of the host's last connection, with the addresses of the
// connection itself; false if there was none.
func (c *Client) Peer(h remote.Host) (remote.Peer, bool) {
	conn := c.lastConnection(h)
	if conn == nil {
		return remote.Peer{}, false
	}
	return conn.peer, conn.peer.Known()
}

// LoginTook is how long the login of the host's last connection took, from the first byte to the first session; 0 if
// that is not known.
func (c *Client) LoginTook(h remote.Host) time.Duration {
	conn := c.lastConnection(h)
	if conn == nil {
		return 0
	}
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.took
}

// lastConnection may be over; it is nil if there was none.
func (c *Client) lastConnection(h remote.Host) *connection {
	p := c.existing(h)
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn
}

// peerOf is the machine that a connection led to. Behind a jump host or a
// ProxyCommand, the address of the connection is not that of the host.
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

// lastHop is the endpoint of the last jump host, reached through those before it.
func lastHop(s config.HostConfig) (endpoint, error) {
	last := len(s.ProxyJump) - 1
	q, err := config.ParseHop(s.ProxyJump[last])
	if err != nil {
		return endpoint{}, &remote.Error{Class: remote.Configuration, Err: err}
	}
	return endpoint{Lookup: q, via: strings.Join(s.ProxyJump[:last], ",")}, nil
}
