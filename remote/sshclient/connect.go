package sshclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/auth"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// defaultConnectTimeout holds where neither the caller nor ssh_config has one.
const defaultConnectTimeout = 10 * time.Second

// target is an endpoint with what the configuration says about it.
type target struct {
	endpoint
	config.HostConfig
	chain []endpoint // itself, and those that need it to reach theirs
}

func (t target) address() string { return net.JoinHostPort(t.HostName, strconv.Itoa(t.Port)) }

// connect makes a connection ready for commands, under one deadline.
func (c *Client) connect(e endpoint, chain []endpoint) (*link, error) {
	if e.loops(chain) {
		return nil, remote.Errorf(remote.Configuration, "ProxyJump of %s leads back to itself", e.Host)
	}
	started := time.Now()
	settings, err := c.resolve(e)
	if err != nil {
		return nil, err
	}
	t := target{endpoint: e, HostConfig: settings, chain: append(chain[:len(chain):len(chain)], e)}
	timeout := positive(positive(c.options.ConnectTimeout, settings.ConnectTimeout), defaultConnectTimeout)
	for {
		ctx, cancel := context.WithDeadlineCause(c.lifetime, started.Add(timeout), errTooLate{timeout})
		l, err := c.login(ctx, t)
		late := errors.Is(context.Cause(ctx), context.DeadlineExceeded)
		cancel()
		if err == nil || !late || !c.keyring.AnsweredSince(started) {
			return l, err
		}
		started = time.Now() // it was the user who took that long, with a passphrase
	}
}

// errNoMoreKeys ends a login when all keys were refused.
var errNoMoreKeys = errors.New("no key was accepted")

// oneByOne offers each key as a try of its own, so that one which cannot sign
// after all, a locked or an unconfirmed one, does not end the login.
func oneByOne(keys auth.Keys) ssh.ClientAuthCallback {
	next := 0
	return func(now *ssh.ClientAuthContext) (ssh.AuthMethod, error) {
		if !slices.Contains(now.AllowedMethods, "publickey") {
			return nil, fmt.Errorf("%w: the server takes no keys now, but %q", errNoMoreKeys, now.AllowedMethods)
		}
		if next == len(keys.Signers) {
			return nil, errNoMoreKeys
		}
		next++
		return ssh.PublicKeys(keys.Signers[next-1]), nil
	}
}

// resolve asks for the configuration, which has the default deadline, for its
// own is not known yet.
func (c *Client) resolve(e endpoint) (config.HostConfig, error) {
	ctx, cancel := context.WithTimeout(c.lifetime, positive(c.options.ConnectTimeout, defaultConnectTimeout))
	defer cancel()
	settings, err := c.resolver.Resolve(ctx, e.Query)
	if err != nil {
		class := remote.Configuration
		if ctx.Err() != nil {
			class = remote.Timeout
		}
		return settings, remote.Errorf(class, "%s: %w", e.Host, err)
	}
	if e.via != "" {
		settings.ProxyJump, settings.ProxyCommand = splitHops(e.via), ""
	}
	return settings, nil
}

// login dials and shakes hands.
func (c *Client) login(ctx context.Context, t target) (*link, error) {
	leave, err := c.dials.enter(ctx, t.via+" "+t.address(), c.options.DialsPerDestination)
	if err != nil {
		return nil, stopped(ctx, "while waiting for a turn to connect to "+t.HostName)
	}
	defer leave()
	conn, hold, err := c.transport(ctx, t)
	if err != nil {
		return nil, err
	}
	l, err := c.shake(ctx, t, conn)
	hold() // the jump host's turn was for the login
	if err != nil {
		_ = conn.Close() // the handshake's error says more
		return nil, err
	}
	return l, nil
}

// shake does the handshake and the login; ctx's end closes the connection
// under it, for that is the one way to stop it.
func (c *Client) shake(ctx context.Context, t target, conn net.Conn) (*link, error) {
	check, err := c.hostKeyCheck(t)
	if err != nil {
		return nil, err
	}
	keys := c.keyring.Keys(t.HostConfig)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	sshConn, channels, requests, err := ssh.NewClientConn(conn, check.address, &ssh.ClientConfig{
		User:              t.User,
		AuthCallback:      oneByOne(keys),
		HostKeyCallback:   check.callback,
		HostKeyAlgorithms: check.algorithms,
		ClientVersion:     "SSH-2.0-genv",
	})
	if err != nil {
		if p, ok := conn.(*proxyConn); ok {
			err = p.explain(err)
		}
		return nil, handshakeError(ctx, t, check, keys, err)
	}
	if !stop() { // too late: the connection is being closed
		_ = sshConn.Close()
		return nil, stopped(ctx, "while logging in to "+t.HostName)
	}
	l, err := c.newLink(t, sshConn, channels, requests)
	if err == nil {
		l.peer = peerOf(t, conn, check.key)
	}
	return l, err
}

// errTooLate is the cause of a connect deadline.
type errTooLate struct{ after time.Duration }

func (e errTooLate) Error() string { return fmt.Sprintf("not within %s", e.after) }
func (e errTooLate) Unwrap() error { return context.DeadlineExceeded }
