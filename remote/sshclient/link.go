package sshclient

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync/atomic"

	"golang.org/x/crypto/ssh"
)

// link is what a connection runs over: our own login, or ssh(1).
type link interface {
	newSession() (channel, error)
	// ping returns when the other end has answered, or the link has ended.
	ping() error
	// heard says whether something came from the other end since it was last asked.
	heard() bool
	// dial connects from the host to another address.
	dial(ctx context.Context, host string, port int) (net.Conn, error)
	// wait returns when the link has ended. Until then the link needs a goroutine in it.
	wait() error
	close()
}

// channel runs a command: an *ssh.Session or an *openssh.Session.
type channel interface {
	StdinPipe() (io.WriteCloser, error)
	StdoutPipe() (io.Reader, error)
	StderrPipe() (io.Reader, error)
	Start(commandLine string) error
	Wait() error
	Close() error
}

// exited is the error of a command that failed, of either kind of channel.
type exited interface {
	error
	ExitStatus() int
	Signal() string
}

// ownLogin is a login of our own. Its client isn't one of ssh.NewClient, which starts three
// goroutines for what wait does in one: with thousands of hosts that is much memory.
type ownLogin struct {
	client   *ssh.Client
	channels <-chan ssh.NewChannel
	requests <-chan *ssh.Request
	read     *atomic.Bool
}

func (l ownLogin) newSession() (channel, error) { return l.client.NewSession() }
func (l ownLogin) heard() bool                  { return l.read.Swap(false) }
func (l ownLogin) close()                       { _ = l.client.Close() } // it may be closed already

// wait refuses all that the host asks for, until the connection ends.
func (l ownLogin) wait() error {
	for channels, requests := l.channels, l.requests; channels != nil || requests != nil; {
		select {
		case r, more := <-requests:
			if !more {
				requests = nil
				continue
			}
			_ = r.Reply(false, nil) // wait's error says more, also below
		case c, more := <-channels:
			if !more {
				channels = nil
				continue
			}
			_ = c.Reject(ssh.UnknownChannelType, "genv opens channels only itself")
		}
	}
	return l.client.Wait()
}

func (l ownLogin) ping() error {
	_, _, err := l.client.SendRequest("keepalive@openssh.com", true, nil)
	return err
}

func (l ownLogin) dial(ctx context.Context, host string, port int) (net.Conn, error) {
	return l.client.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}

// refusedForNow says whether the host has refused a session, because there are too many.
// Nothing was begun.
func refusedForNow(err error) bool {
	var refused *ssh.OpenChannelError
	return errors.As(err, &refused)
}
