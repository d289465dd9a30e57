package sshclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
)

// sessionsPerLink bounds the commands at once on one connection; sshd's own
// limit is 10 (sshd_config(5), MaxSessions), and a host has one or two.
const sessionsPerLink = 2

// link is a connection that is logged in.
type link struct {
	ssh      *ssh.Client
	sessions chan struct{}
	done     chan struct{} // closed when the connection is over
	peer     remote.Peer   // what it leads to

	mu  sync.Mutex
	why error // the first reason for its end
}

func (c *Client) newLink(t target, conn ssh.Conn, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) (*link, error) {
	l := &link{ssh: ssh.NewClient(conn, channels, requests), sessions: make(chan struct{}, sessionsPerLink), done: make(chan struct{})}
	forget := context.AfterFunc(c.lifetime, func() { l.close(errClosed) }) // also where no peer has it any more
	watch := func() {
		l.end(l.ssh.Wait())
		forget()
		_ = l.ssh.Close() // it is over already
	}
	interval, count := positive(t.ServerAliveInterval, c.options.KeepAlive), positive(t.ServerAliveCountMax, 3)
	if !c.spawn(watch) || !c.spawn(func() { l.keepAlive(interval, count) }) {
		_ = l.ssh.Close()
		return nil, &remote.Error{Class: remote.Cancelled, Err: errClosed}
	}
	return l, nil
}

func (l *link) alive() bool {
	select {
	case <-l.done:
		return false
	default:
		return true
	}
}

// endsSoon tells whether the connection is over, or is in the next moment: its
// sessions learn of its end a little earlier.
func (l *link) endsSoon() bool {
	select {
	case <-l.done:
		return true
	case <-time.After(closeGrace / 4):
		return false
	}
}

// end records why the connection is over; the first reason stays.
func (l *link) end(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alive() {
		l.why = why
		close(l.done)
	}
}

// reason is why the connection is over.
func (l *link) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why == nil {
		return errors.New("the connection was closed by the host")
	}
	return fmt.Errorf("the connection ended: %w", printableError(l.why))
}

// close ends the connection and all that runs on it.
func (l *link) close(why error) {
	l.end(why)
	_ = l.ssh.Close() // that it was closed before is no news
}

// keepAlive asks the host for a sign of life each interval and gives the
// connection up after count questions' time without an answer: the library
// would wait for ever on a peer that is frozen or cut off.
func (l *link) keepAlive(interval time.Duration, count int) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	answered := make(chan struct{}, 1)
	asked, missed := false, 0
	var asking sync.WaitGroup
	defer asking.Wait() // the close below has freed it
	for {
		select {
		case <-l.done:
			return
		case <-answered:
			asked, missed = false, 0
			continue
		case <-ticker.C:
		}
		if asked {
			if missed++; missed >= count {
				l.close(fmt.Errorf("no sign of life for %s", interval*time.Duration(count)))
				return
			}
			continue
		}
		asked = true
		asking.Go(func() {
			if _, _, err := l.ssh.SendRequest("keepalive@openssh.com", true, nil); err == nil {
				answered <- struct{}{}
			}
		})
	}
}
