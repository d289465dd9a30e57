package auth

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// agentTimeout bounds one request: an agent may ask its user to confirm.
const agentTimeout = 10 * time.Second

// listTTL is how long the list of an agent's keys is cached: a hundred hosts that
// are dialled at the same time need it once.
const listTTL = 5 * time.Second

// agentConn is the connection to one agent, opened when it is needed.
type agentConn struct {
	path string

	mu     sync.Mutex
	conn   atomic.Pointer[deadlineConn] // closed without mu, which is locked during a request
	keys   []ssh.Signer
	listed time.Time
	failed error
}

// agentKeys are the keys of the agent in its order; nil without an agent.
func (k *Keyring) agentKeys(path string) ([]ssh.Signer, error) {
	if path == "" {
		return nil, nil
	}
	k.mu.Lock()
	a := k.agents[path]
	if a == nil {
		a = &agentConn{path: path}
		k.agents[path] = a
	}
	k.mu.Unlock()
	return a.list()
}

func (a *agentConn) list() ([]ssh.Signer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.listed.IsZero() && time.Since(a.listed) < listTTL {
		return a.keys, a.failed
	}
	a.keys, a.failed = a.request()
	a.listed = time.Now()
	if a.failed != nil {
		a.close() // the next one connects again
	}
	return a.keys, a.failed
}

func (a *agentConn) request() ([]ssh.Signer, error) {
	conn := a.conn.Load()
	if conn == nil {
		opened, err := net.DialTimeout("unix", a.path, agentTimeout)
		if err != nil {
			return nil, fmt.Errorf("the agent does not answer: %w", err)
		}
		conn = &deadlineConn{opened}
		a.conn.Store(conn)
	}
	signers, err := agent.NewClient(conn).Signers()
	if err != nil {
		return nil, fmt.Errorf("the agent at %s does not list its keys: %w", a.path, err)
	}
	return signers, nil
}

// close closes the connection, which ends a request that waits for an answer.
func (a *agentConn) close() {
	if conn := a.conn.Swap(nil); conn != nil {
		_ = conn.Close() // nothing was buffered
	}
}

// deadlineConn sets a deadline for each request.
type deadlineConn struct{ net.Conn }

func (c *deadlineConn) Write(b []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(agentTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
