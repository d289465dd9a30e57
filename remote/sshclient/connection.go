package sshclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// sessionsPerConnection: sshd allows 10 (sshd_config(5), MaxSessions).
const sessionsPerConnection = 2

type connection struct {
	link     carrier
	sessions chan struct{}
	done     chan struct{} // closed when the connection has ended
	peer     remote.Peer   // the machine at the other end
	opened   atomic.Bool   // a session was opened, which completes the login
	retired  atomic.Bool   // to be closed once its sessions have ended

	mu   sync.Mutex
	why  error         // first reason for its end
	took time.Duration // for the login and the first session; 0 if unknown or the user was asked

	interval time.Duration // between keepalives
	count    int           // unanswered intervals until the connection is closed
	beat     sync.Mutex    // guards the following fields
	timer    *time.Timer
	asked    bool // a keepalive is unanswered
	missed   int  // unanswered intervals
}

func (c *Client) newConnection(s config.HostConfig, over carrier) (*connection, error) {
	l := &connection{
		link: over, sessions: make(chan struct{}, sessionsPerConnection), done: make(chan struct{}),
		interval: positive(s.ServerAliveInterval, c.options.KeepAlive), count: positive(s.ServerAliveCountMax, 3),
	}
	forget := context.AfterFunc(c.lifetime, func() { l.close(errClosed) }) // even if replaced
	watch := func() {
		l.end(l.link.wait())
		forget()
		l.link.close()
	}
	if !c.spawn(watch) {
		l.link.close()
		return nil, &remote.Error{Class: remote.Cancelled, Err: errClosed}
	}
	c.keepAlive(l)
	return l, nil
}

func (l *connection) hasOpened(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.opened.Swap(true) && l.took > 0 {
		l.took += took
	}
}

func (l *connection) alive() bool {
	select {
	case <-l.done:
		return false
	default:
		return true
	}
}

// endsSoon says whether the connection is ending: its sessions end slightly earlier.
func (l *connection) endsSoon() bool {
	select {
	case <-l.done:
		return true
	case <-time.After(closeGrace / 4):
		return false
	}
}

func (l *connection) end(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alive() {
		l.why = why
		close(l.done)
	}
}

func (l *connection) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why == nil {
		return errors.New("the connection was closed by the host")
	}
	return fmt.Errorf("the connection ended: %w", printableError(l.why))
}

func (l *connection) close(why error) {
	l.end(why)
	l.link.close()
}

// retire closes the connection once its sessions have ended.
func (l *connection) retire() {
	if l.retired.Store(true); len(l.sessions) == 0 {
		l.close(errClosed)
	}
}

func (l *connection) leave() {
	if <-l.sessions; l.retired.Load() {
		l.retire()
	}
}

// keepAlive sends a request per silent interval, and closes the connection after count unanswered ones: the library
// would wait forever. A timer needs less memory than a goroutine.
func (c *Client) keepAlive(l *connection) {
	l.beat.Lock()
	defer l.beat.Unlock()
	l.timer = time.AfterFunc(l.interval, func() { c.spawn(l.tick) })
}

func (l *connection) tick() {
	if l.asks() && l.link.ping() == nil {
		l.beat.Lock()
		defer l.beat.Unlock()
		l.asked, l.missed = false, 0
	}
}

// asks says whether to send a request now. While one is unanswered, it counts intervals.
func (l *connection) asks() bool {
	l.beat.Lock()
	defer l.beat.Unlock()
	if !l.alive() {
		return false
	}
	l.timer.Reset(l.interval)
	if l.link.heard() {
		l.missed = 0
		return false
	}
	if !l.asked {
		l.asked = true
		return true
	}
	if l.missed++; l.missed >= l.count {
		l.close(fmt.Errorf("no sign of life for %s", l.interval*time.Duration(l.count)))
	}
	return false
}

func (c *Client) transport(ctx context.Context, t resolvedEndpoint) (conn net.Conn, release func(), err error) {
	if len(t.ProxyJump) > 0 {
		return c.jump(ctx, t)
	}
	t.within(c.connectTimeout(t.HostConfig))
	if t.ProxyCommand != "" {
		conn, err = c.proxyCommand(t.ProxyCommand)
	} else {
		conn, err = c.dial(ctx, t)
	}
	return conn, func() {}, err
}

// dial uses a probe's connection, or resolves the name again.
func (c *Client) dial(ctx context.Context, t resolvedEndpoint) (net.Conn, error) {
	if conn := c.kept(t.endpoint); conn != nil {
		return conn, nil
	}
	conn, err := c.dialHost(ctx, t.HostConfig)
	switch {
	case err == nil:
		return conn, nil
	case c.lifetime.Err() != nil:
		return nil, stopped(ctx, "while connecting to "+t.address())
	case errors.As(err, new(*remote.Error)): // no address to connect to or from
		return nil, err
	case ctx.Err() != nil: // nothing answers
		return nil, remote.Errorf(remote.Unreachable, "no connection to %s: %w", t.address(), context.Cause(ctx))
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return nil, remote.Errorf(remote.Configuration, "too many open files: raise the limit with `ulimit -n`: %w",
			err)
	case isDrop(err):
		err = dropped(err)
	}
	return nil, remote.Errorf(remote.Unreachable, "no connection to %s: %w", t.address(), err)
}

// jump goes through the last hop, whose connection all hosts behind it share.
func (c *Client) jump(ctx context.Context, t resolvedEndpoint) (net.Conn, func(), error) {
	e, err := lastHop(t.HostConfig)
	if err != nil {
		return nil, nil, err
	}
	if slices.Contains(t.chain, e) {
		return nil, nil, remote.Errorf(remote.Configuration, "ProxyJump of %s leads back to %s", t.Host, e.Host)
	}
	p, err := c.shared(e)
	if err != nil {
		return nil, nil, err
	}
	bastion, err := p.connected(ctx, t.chain)
	if err != nil {
		return nil, nil, remote.Errorf(remote.ClassOf(err), "jump host %s: %w", e.Host, err)
	}
	leave, err := c.turn(ctx, "via "+e.via+" "+e.Host, dialsPerJump)
	if err != nil {
		return nil, nil, stopped(ctx, "while waiting to connect through jump host "+e.Host)
	}
	leave = sync.OnceFunc(leave)
	late := time.AfterFunc(placeFor, leave)
	release := func() { late.Stop(); leave() }
	t.within(c.connectTimeout(t.HostConfig))
	conn, err := bastion.link.dial(ctx, t.HostName, t.Port)
	if err != nil {
		release()
		if c.lifetime.Err() != nil {
			return nil, nil, stopped(ctx, "while connecting to "+t.address())
		}
		return nil, nil, remote.Errorf(remote.Unreachable, "no connection from jump host %s to %s: %w", e.Host,
			t.address(), printableError(err))
	}
	return conn, release, nil
}

// carrier is our own login or ssh(1).
type carrier interface {
	newSession() (channel, error)
	// ping returns once the other end answered or the link ended.
	ping() error
	// heard says whether something arrived since the last call.
	heard() bool
	// dial connects from the host.
	dial(ctx context.Context, host string, port int) (net.Conn, error)
	// wait returns once the link has ended.
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

// ownLogin saves ssh.NewClient's three additional goroutines.
type ownLogin struct {
	client   *ssh.Client
	channels <-chan ssh.NewChannel
	requests <-chan *ssh.Request
	read     *atomic.Bool
}

func (l ownLogin) newSession() (channel, error) { return l.client.NewSession() }
func (l ownLogin) heard() bool                  { return l.read.Swap(false) }
func (l ownLogin) close()                       { _ = l.client.Close() } // may be closed already

// wait refuses all requests from the host.
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
			_ = r.Reply(false, nil) // like OpenSSH for keepalives
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

// refusedForNow says that the host has too many sessions. Nothing was started.
func refusedForNow(err error) bool {
	_, refused := errors.AsType[*ssh.OpenChannelError](err)
	return refused
}

// Concurrent logins to one address, and through one jump host (sshd_config(5), MaxStartups).
const (
	dialsPerAddress = 8
	dialsPerJump    = 32
	// placeFor bounds a login's slot at a jump host: slow or dead hosts must not delay others.
	placeFor = 2 * time.Second
)

func (c *Client) turn(ctx context.Context, name string, limit int) (release func(), err error) {
	value, _ := c.dials.LoadOrStore(name, make(chan struct{}, limit))
	slots := value.(chan struct{})
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

const spareDescriptors = 128 // for files, agents and child processes

// EnoughDescriptors fails if the limit of open files, which package os raised, is too low.
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
