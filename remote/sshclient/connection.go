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

// sessionsPerConnection limits the commands at a time on one connection. sshd has 10 (sshd_config(5), MaxSessions).
const sessionsPerConnection = 2

type connection struct {
	link     carrier
	sessions chan struct{}
	done     chan struct{} // closed when the connection is over
	peer     remote.Peer   // the machine at the other end
	opened   atomic.Bool   // a session was opened: until then the login isn't over

	mu   sync.Mutex
	why  error         // the first reason for its end
	took time.Duration // the login and the first session; 0 where that is not known, or the user was asked meanwhile
}

func (c *Client) newConnection(s config.HostConfig, over carrier) (*connection, error) {
	l := &connection{link: over, sessions: make(chan struct{}, sessionsPerConnection), done: make(chan struct{})}
	forget := context.AfterFunc(c.lifetime, func() { l.close(errClosed) }) // also if it has been replaced
	watch := func() {
		l.end(l.link.wait())
		forget()
		l.link.close()
	}
	interval, count := positive(s.ServerAliveInterval, c.options.KeepAlive), positive(s.ServerAliveCountMax, 3)
	if !c.spawn(watch) {
		l.link.close()
		return nil, &remote.Error{Class: remote.Cancelled, Err: errClosed}
	}
	c.keepAlive(l, interval, count)
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

// endsSoon says whether the connection is over, or will be in a moment: its sessions end slightly earlier.
func (l *connection) endsSoon() bool {
	select {
	case <-l.done:
		return true
	case <-time.After(closeGrace / 4):
		return false
	}
}

// end records why the connection is over; only the first reason is kept.
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

type keepAlive struct {
	conn     *connection
	interval time.Duration
	count    int

	mu     sync.Mutex
	timer  *time.Timer
	asked  bool
	missed int // intervals without an answer
}

// keepAlive sends a request in each interval in which nothing was heard, and closes the connection after count
// intervals without an answer: the library would wait forever. It has a timer, since a goroutine takes more memory.
func (c *Client) keepAlive(l *connection, interval time.Duration, count int) {
	k := &keepAlive{conn: l, interval: interval, count: count}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = time.AfterFunc(interval, func() { c.spawn(k.tick) })
}

func (k *keepAlive) tick() {
	if k.asks() && k.conn.link.ping() == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.asked, k.missed = false, 0
	}
}

// asks says whether to send a request now. While there is one without an answer, it counts intervals instead.
func (k *keepAlive) asks() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.conn.alive() {
		return false
	}
	k.timer.Reset(k.interval)
	if k.conn.link.heard() {
		k.missed = 0
		return false
	}
	if !k.asked {
		k.asked = true
		return true
	}
	if k.missed++; k.missed >= k.count {
		k.conn.close(fmt.Errorf("no sign of life for %s", k.interval*time.Duration(k.count)))
	}
	return false
}

// transport connects to the host's sshd: through jump hosts, a command, or TCP. release ends the login's place.
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

// dial resolves the name again and tries its addresses, unless a probe has connected.
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
	case ctx.Err() != nil: // packets are lost, nothing answers
		return nil, remote.Errorf(remote.Unreachable, "no connection to %s: %w", t.address(), context.Cause(ctx))
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return nil, remote.Errorf(remote.Configuration, "too many open files: raise the limit with `ulimit -n`: %w",
			err)
	case isDrop(err):
		err = dropped(err)
	}
	return nil, remote.Errorf(remote.Unreachable, "no connection to %s: %w", t.address(), err)
}

// jump reaches the host through the last hop of its chain. The hop's connection is shared by all hosts behind it.
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

// turn waits for one of as many places as there are for logins to the same name.
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

// EnoughDescriptors returns an error if the limit of open files, which package os has raised as far as it may, is too
// low for connections to that many hosts.
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
