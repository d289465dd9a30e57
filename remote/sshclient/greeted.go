package sshclient

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// greeted connects to an address and waits for the first byte, which is the next one to read of the
// connection that it returns. It calls the kernel
// itself, since package net takes three times the processor time, and a thousand
// hosts that are down are probed three hundred times a second.
func greeted(ctx context.Context, local, address netip.AddrPort) (conn net.Conn, connected bool, err error) {
	family, to := sockaddr(address)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, false, os.NewSyscallError("socket", err)
	}
	if local.IsValid() {
		_, from := sockaddr(local)
		err = os.NewSyscallError("bind", unix.Bind(fd, from))
	}
	if err == nil {
		err = os.NewSyscallError("connect", unix.Connect(fd, to))
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		_ = unix.Close(fd) // it was never connected
		return nil, false, err
	}
	f := os.NewFile(uintptr(fd), address.String())
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { _ = f.Close() }) // which frees what waits for it
	defer stop()
	first := make([]byte, 1)
	if connected, err = true, waitConnected(f); err != nil {
		connected = false
	} else if _, err = f.Read(first); err == nil {
		var over net.Conn
		if over, err = net.FileConn(f); err == nil {
			return &greetedConn{over, first}, true, nil
		}
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, connected, err
}

// greetedConn is a connection of which the first bytes were read.
type greetedConn struct {
	net.Conn
	read []byte
}

func (g *greetedConn) Read(p []byte) (int, error) {
	if len(g.read) == 0 {
		return g.Conn.Read(p)
	}
	n := copy(p, g.read)
	g.read = g.read[n:]
	return n, nil
}

// greetedFor is how long a connection that was greeted is kept for the login.
const greetedFor = 10 * time.Second

// keep keeps a connection for the login that follows: a server may count one without a login as
// an attack (PerSourcePenalties of sshd_config(5)).
func (c *Client) keep(e endpoint, conn net.Conn) {
	if old := c.kept(e); old != nil {
		_ = old.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.greeted == nil {
		c.greeted = make(map[endpoint]net.Conn)
	}
	c.greeted[e] = conn
	stop := context.AfterFunc(c.lifetime, func() { c.drop(e, conn) })
	time.AfterFunc(greetedFor, func() {
		stop()
		c.drop(e, conn)
	})
}

// kept takes the connection that is kept; nil for none.
func (c *Client) kept(e endpoint) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.greeted[e]
	delete(c.greeted, e)
	return conn
}

// drop closes a connection that no login has taken.
func (c *Client) drop(e endpoint, conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.greeted[e] == conn {
		delete(c.greeted, e)
		_ = conn.Close()
	}
}

// waitConnected waits for the end of a connect(2) that is under way.
func waitConnected(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = raw.Write(func(fd uintptr) bool { // called again when the socket becomes writable
		switch errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); {
		case err != nil:
			failure = os.NewSyscallError("getsockopt", err)
			return true
		case errno != 0:
			failure = os.NewSyscallError("connect", unix.Errno(errno))
			return true
		}
		_, err := unix.Getpeername(int(fd))
		return err == nil // ENOTCONN while it is under way
	})
	return errors.Join(failure, err)
}

// sockaddr is an address as the kernel takes it.
func sockaddr(a netip.AddrPort) (family int, _ unix.Sockaddr) {
	if a.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	to := &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	if zone := a.Addr().Zone(); zone != "" { // an interface, by name or number
		if link, err := net.InterfaceByName(zone); err == nil {
			to.ZoneId = uint32(link.Index)
		} else if number, err := strconv.ParseUint(zone, 10, 32); err == nil {
			to.ZoneId = uint32(number)
		}
	}
	return unix.AF_INET6, to
}
