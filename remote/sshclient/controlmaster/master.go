package controlmaster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

var (
	// ErrRefused is wrapped when the host, or the master, refused a session. Nothing was
	// begun; too many sessions may be open (sshd_config(5), MaxSessions).
	ErrRefused = errors.New("the ControlMaster refused it")
	// ErrNoStatus is wrapped when a command ended, and its status is not known: the
	// connection broke, or a signal ended it.
	ErrNoStatus = errors.New("no exit status came through the ControlMaster")

	errClosed = errors.New("the connection to the ControlMaster was closed")
)

// Master is a running ssh. It is safe for concurrent use.
type Master struct {
	path     string
	conn     *net.UnixConn // for checks, and to notice the master's end
	alive    chan struct{}
	done     chan struct{} // closed when the master has ended, or Close was called
	lifetime context.Context
	cancel   context.CancelFunc
	ended    error // valid after done

	asking sync.Mutex // one check at a time

	mu   sync.Mutex
	open map[io.Closer]bool // closed with the Master; nil after that
}

// Dial connects to the master at a ControlPath. Its socket must belong to this user,
// and no one else may use it. The error says why there is no master.
func Dial(ctx context.Context, path string) (*Master, error) {
	if err := checkOwner(path); err != nil {
		return nil, err
	}
	conn, err := dial(ctx, path)
	if err != nil {
		return nil, err
	}
	m := &Master{path: path, conn: conn, alive: make(chan struct{}), done: make(chan struct{}), open: map[io.Closer]bool{}}
	m.lifetime, m.cancel = context.WithCancel(context.Background())
	go m.read()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	if err = m.Alive(); !stop() || err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("%s: the ssh there does not answer: %w", path, errors.Join(err, context.Cause(ctx)))
	}
	return m, nil
}

// checkOwner refuses what ssh would not have made.
func checkOwner(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is not a socket", path)
	case !ok || int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", path)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s can be used by others: chmod 600 it", path)
	}
	return nil
}

// dial connects to the socket and exchanges versions.
func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	var dialer net.Dialer
	opened, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	conn := opened.(*net.UnixConn)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = errors.Join(checkPeer(conn), send(conn, message(msgHello, uint32(protocol))))
	if err == nil {
		err = readHello(conn)
	}
	if !stop() || err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w", path, errors.Join(err, context.Cause(ctx)))
	}
	return conn, nil
}

// checkPeer refuses a server that another user runs, whatever the path leads to.
func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, failed); err == nil && int(peer.Uid) != os.Geteuid() {
		err = fmt.Errorf("the program there belongs to uid %d", peer.Uid)
	}
	return err
}

func readHello(conn io.Reader) error {
	kind, p, err := receive(conn)
	if err != nil {
		return err
	}
	if version, ok := p.number(); kind != msgHello || !ok || version != protocol {
		return fmt.Errorf("%w: not version %d of its protocol", errMalformed, protocol)
	}
	return nil
}

// read reads the answers to checks until the master ends.
func (m *Master) read() {
	var err error
	for err == nil {
		var kind uint32
		if kind, _, err = receive(m.conn); err == nil && kind != msgAlive {
			err = errMalformed
		}
		if err == nil {
			select {
			case m.alive <- struct{}{}:
			case <-m.done:
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the ssh that was the ControlMaster has ended")
	}
	m.end(err)
}

// end closes everything; only the first reason is kept.
func (m *Master) end(why error) {
	m.mu.Lock()
	open := m.open
	m.open = nil
	if open != nil {
		m.ended = why
		close(m.done)
	}
	m.mu.Unlock()
	m.cancel()
	_ = m.conn.Close() // it may be closed already
	for c := range open {
		_ = c.Close()
	}
}

// keep has c closed with the Master. It is false if that is closed.
func (m *Master) keep(c io.Closer) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open == nil {
		return false
	}
	m.open[c] = true
	return true
}

func (m *Master) forget(c io.Closer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, c)
}

// Alive returns when the master has answered, or has ended. It says nothing about the
// host.
func (m *Master) Alive() error {
	m.asking.Lock()
	defer m.asking.Unlock()
	if err := send(m.conn, message(msgAliveCheck, uint32(0))); err != nil {
		return err
	}
	select {
	case <-m.alive:
		return nil
	case <-m.done:
		return m.ended
	}
}

// Wait returns why the master is not there any more.
func (m *Master) Wait() error {
	<-m.done
	return m.ended
}

// Close ends the sessions and connections. The master goes on.
func (m *Master) Close() error {
	m.end(errClosed)
	return nil
}

// request asks on a socket of its own, hands over the files, and waits for the answer.
func request(conn *net.UnixConn, p packet, files ...*os.File) error {
	if err := send(conn, p); err != nil {
		return err
	}
	for _, f := range files {
		rights := unix.UnixRights(int(f.Fd()))
		if _, _, err := conn.WriteMsgUnix([]byte{0}, rights, nil); err != nil {
			return err
		}
	}
	kind, rest, err := receive(conn)
	if err != nil {
		return err
	}
	_, _ = rest.number() // the request's id
	said, _ := rest.text()
	switch kind {
	case msgSessionOpened:
		return nil
	case msgFailure:
		return fmt.Errorf("%w: %s", ErrRefused, said)
	case msgDenied:
		return fmt.Errorf("the ControlMaster does not permit it: %s", said)
	}
	return errMalformed
}
