package auth

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// agentPatience bounds one request: an agent may ask its user to confirm.
const agentPatience = 10 * time.Second

// listFor is how long an agent's list is taken as it was: a hundred hosts that
// are dialled at once need it once.
const listFor = 5 * time.Second

// agentConn is the connection to one agent, opened when it is needed.
type agentConn struct {
	path string

	mu     sync.Mutex
	live   atomic.Pointer[patient] // closed from outside, while mu is held by who waits
	keys   map[string]heldKey
	listed time.Time
	failed error
}

// heldKey is a key of an agent and its place in the agent's list.
type heldKey struct {
	ssh.Signer
	place int
}

// held are the agent's keys by their public form; nil without an agent.
func (k *Keyring) held(path string) (map[string]heldKey, error) {
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

func (a *agentConn) list() (map[string]heldKey, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.listed.IsZero() && time.Since(a.listed) < listFor {
		return a.keys, a.failed
	}
	a.keys, a.failed = a.ask()
	a.listed = time.Now()
	if a.failed != nil {
		a.drop() // the next one connects again
	}
	return a.keys, a.failed
}

func (a *agentConn) ask() (map[string]heldKey, error) {
	conn := a.live.Load()
	if conn == nil {
		opened, err := net.DialTimeout("unix", a.path, agentPatience)
		if err != nil {
			return nil, fmt.Errorf("the agent does not answer: %w", err)
		}
		conn = &patient{opened}
		a.live.Store(conn)
	}
	signers, err := agent.NewClient(conn).Signers()
	if err != nil {
		return nil, fmt.Errorf("the agent at %s does not list its keys: %w", a.path, err)
	}
	keys := make(map[string]heldKey, len(signers))
	for i, signer := range signers {
		keys[string(signer.PublicKey().Marshal())] = heldKey{signer, i}
	}
	return keys, nil
}

// drop closes the connection, which frees who waits for an answer on it.
func (a *agentConn) drop() {
	if conn := a.live.Swap(nil); conn != nil {
		_ = conn.Close() // a local socket that holds nothing of ours
	}
}

func inOrder(held map[string]heldKey) []ssh.Signer {
	all := make([]heldKey, 0, len(held))
	for _, key := range held {
		all = append(all, key)
	}
	slices.SortFunc(all, func(a, b heldKey) int { return cmp.Compare(a.place, b.place) })
	signers := make([]ssh.Signer, len(all))
	for i, key := range all {
		signers[i] = key.Signer
	}
	return signers
}

// patient gives each request its deadline.
type patient struct{ net.Conn }

func (p *patient) Write(b []byte) (int, error) {
	if err := p.SetDeadline(time.Now().Add(agentPatience)); err != nil {
		return 0, err
	}
	return p.Conn.Write(b)
}
