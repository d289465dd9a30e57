package sshclient

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// path is an address of a host, and the local one to connect from, which is not valid
// where the kernel chooses it.
type path struct{ from, to netip.AddrPort }

// paths resolves the host's name. Addresses of a family in which this machine has no
// address to connect from (BindAddress) are left out.
func (c *Client) paths(ctx context.Context, s config.HostConfig) ([]path, error) {
	found, err := c.names.Addresses(ctx, cmp.Or(map[string]string{"inet": "ip4", "inet6": "ip6"}[s.AddressFamily], "ip"), s.HostName)
	if err != nil {
		return nil, err
	}
	var usable []path
	for _, a := range found {
		p := path{to: netip.AddrPortFrom(a, uint16(s.Port))}
		from, failed := c.source(ctx, s, a)
		if failed != nil {
			err = failed
			continue
		}
		if from.IsValid() {
			p.from = netip.AddrPortFrom(from, 0)
		}
		usable = append(usable, p)
	}
	if len(usable) > 0 {
		err = nil
	}
	return usable, err
}

// sourceError is a BindAddress that can't be used.
type sourceError struct{ error }

func (e *sourceError) Unwrap() error { return e.error }

// source is the local address to connect from: BindAddress, if there is one.
func (c *Client) source(ctx context.Context, s config.HostConfig, to netip.Addr) (from netip.Addr, err error) {
	if s.BindAddress == "" {
		return from, nil
	}
	family := "ip6"
	if to.Is4() {
		family = "ip4"
	}
	found, err := c.names.Addresses(ctx, family, s.BindAddress)
	if err != nil {
		return from, &sourceError{fmt.Errorf("BindAddress %q in ssh_config cannot be used: %w", s.BindAddress, err)}
	}
	return found[0], nil
}

// stagger is how long an address may take before the next one is tried too (RFC 8305,
// section 5).
const stagger = 250 * time.Millisecond

// race connects to the first address that answers. The error is that of the first one
// that failed.
func race(ctx context.Context, left []path) (won net.Conn, failed error) {
	type result struct {
		conn net.Conn
		err  error
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
			p := left[0]
			left = left[1:]
			running++
			go func() {
				conn, err := p.dial(ctx)
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
			_ = r.conn.Close() // it came too late
		}
	}
	if won != nil {
		failed = nil
	}
	return won, failed
}

func (p path) dial(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	if p.from.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(p.from)
	}
	return dialer.DialContext(ctx, "tcp", p.to.String())
}
