package sshclient

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
)

// carrier is what a connection runs over: our own login, or ssh(1).
type carrier interface {
	newSession() (channel, error)
	// ping returns when the other end has answered, or the link has ended.
	ping() error
	// heard says whether something came from the other end since it was last asked.
	heard() bool
	// dial connects from the host to another address.
	dial(ctx context.Context, host string, port int) (net.Conn, error)
	// wait returns when the link has ended.
	wait() error
	close()
}

// channel runs a command: an *ssh.Session or an *sshProcess.
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

// ownLogin is a login of our own. A client by ssh.NewClient has three more goroutines: wait does what they would.
type ownLogin struct {
	client   *ssh.Client
	channels <-chan ssh.NewChannel
	requests <-chan *ssh.Request
	read     *atomic.Bool
}

func (l ownLogin) newSession() (channel, error) { return l.client.NewSession() }
func (l ownLogin) heard() bool                  { return l.read.Swap(false) }
func (l ownLogin) close()                       { _ = l.client.Close() } // it may be closed already

// wait refuses all that the host asks for until the link has ended.
func (l ownLogin) wait() error {
	for {
		select {
		case c, open := <-l.channels:
			if !open {
				return l.client.Wait()
			}
			_ = c.Reject(ssh.UnknownChannelType, "unknown channel type: "+c.ChannelType())
		case r, open := <-l.requests:
			if !open {
				return l.client.Wait()
			}
			_ = r.Reply(false, nil) // as OpenSSH answers keepalives
		}
	}
}

func (l ownLogin) ping() error {
	_, _, err := l.client.SendRequest("keepalive@openssh.com", true, nil)
	return err
}

func (l ownLogin) dial(ctx context.Context, host string, port int) (net.Conn, error) {
	return l.client.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}

// refusedForNow says whether the host has refused a session, because there are too many. Nothing was begun.
func refusedForNow(err error) bool {
	_, refused := errors.AsType[*ssh.OpenChannelError](err)
	return refused
}

// How many logins may be under way to one address, and through one jump host (sshd_config(5), MaxStartups).
const (
	dialsPerAddress = 8
	dialsPerJump    = 32
	// placeFor is how long a login has its place at a jump host: hosts that are slow, or down, don't delay the others.
	placeFor = 2 * time.Second
)

type dialLimits struct{ slots sync.Map } // of chan struct{}

func (d *dialLimits) acquire(ctx context.Context, name string, limit int) (release func(), err error) {
	value, _ := d.slots.LoadOrStore(name, make(chan struct{}, limit))
	slots := value.(chan struct{})
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// spareDescriptors are for files, agents and child processes.
const spareDescriptors = 128

// EnoughDescriptors returns an error if the limit of open files is too low for connections to that many hosts. Package
// os has raised the soft limit to the hard limit before.
func EnoughDescriptors(hosts int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return remote.Errorf(remote.Configuration, "cannot read the limit of open files: %w", err)
	}
	need := uint64(hosts) + spareDescriptors
	if limit.Cur >= need {
		return nil
	}
	return remote.Errorf(remote.Configuration, "%d hosts need %d open files and the limit is %d: run `ulimit -n %d` "+
		"first", hosts, need, limit.Cur, need)
}
