package sshclient

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// proxyGrace is how long a ProxyCommand has to end after SIGHUP.
const proxyGrace = 2 * time.Second

// proxyCommand runs a ProxyCommand as OpenSSH does: by a shell that `exec` replaces, with one end of a socket as its
// stdin and stdout. The administrator wrote it; the names that tokens insert were checked not to contain anything that
// a shell interprets.
func (c *Client) proxyCommand(line string) (net.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, remote.Errorf(remote.Unreachable, "ProxyCommand: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "proxy"), os.NewFile(uintptr(pair[1]), "proxy")
	conn, err := net.FileConn(ours)
	_ = ours.Close() // FileConn duplicates it
	if err != nil {
		_ = theirs.Close()
		return nil, remote.Errorf(remote.Unreachable, "ProxyCommand: %w", err)
	}
	command := exec.Command("/bin/sh", "-c", "exec "+line)
	stderr := &text.Tail{Limit: 4 << 10}
	command.Stdin, command.Stdout, command.Stderr = theirs, theirs, stderr
	command.WaitDelay = proxyGrace
	group, err := startGroup(command)
	_ = theirs.Close() // the command has it
	if err != nil {
		_ = conn.Close()
		return nil, remote.Errorf(remote.Unreachable, "ProxyCommand: %w", err)
	}
	if !c.spawn(func() { group.reap(false) }) {
		_ = conn.Close()
		group.reap(false)
		return nil, &remote.Error{Class: remote.Cancelled, Err: errClosed}
	}
	return &proxyConn{Conn: conn, processGroup: group, stderr: stderr}, nil
}

type proxyConn struct {
	net.Conn
	*processGroup
	stderr *text.Tail
	closed sync.Once
}

// Close sends SIGHUP to the command and its children, and SIGKILL if they don't end.
func (p *proxyConn) Close() error {
	err := p.Conn.Close()
	p.closed.Do(func() { p.end(unix.SIGHUP, proxyGrace) })
	return err
}

// explain adds the last line that the command wrote to stderr to the error of its
// connection. It waits a moment for a command that is ending.
func (p *proxyConn) explain(err error, greeted bool) error {
	dropped := false
	if isDrop(err) && !greeted {
		dropped = p.dropped()
	} else {
		p.endsWithin(proxyGrace / 10)
	}
	if line := text.LastLine(p.stderr.String()); line != "" {
		err = fmt.Errorf("%w (ProxyCommand: %s)", err, line)
	}
	if dropped {
		err = &droppedError{err}
	}
	return err
}

// dropped says whether a server closed the connection, as one does that is busy: the bastion, which ssh then reports,
// or the host behind it, without a word. Commands that fail in another way fail every time.
func (p *proxyConn) dropped() bool {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // ends a command that waits for more
	}
	ended := p.endsWithin(proxyGrace)
	said := p.stderr.String()
	return proxyDropped().MatchString(said) || ended && said == "" && p.command.ProcessState.Success()
}

func (p *proxyConn) endsWithin(limit time.Duration) bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(limit):
		return false
	}
}

// proxyDropped is what ssh says when a server drops the connection before its version.
var proxyDropped = text.Pattern(
	`(?m)^(kex|ssh)_exchange_identification: .*([Cc]onnection closed by remote host|Connection reset by ` +
		`peer|Broken pipe)|^Connection (closed|reset) by UNKNOWN port -1`)
