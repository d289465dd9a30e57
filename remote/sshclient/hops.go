package sshclient

import (
	"crypto/sha256"
	"fmt"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// routeID identifies what a connection depends on: the settings of its endpoint and of the
// jump hosts on the way. `j`, `root@j` and `j:22` have the same one if ssh_config sets
// the same for them.
type routeID [sha256.Size]byte

// maxJumps is far more than any chain has.
const maxJumps = 16

// identify returns the routeID of a connection with the settings.
func (c *Client) identify(s config.HostConfig, jumps int) (id routeID, err error) {
	if len(s.ProxyJump) > 0 {
		e, err := lastHop(s)
		if err == nil && jumps == maxJumps {
			err = remote.Errorf(remote.Configuration, "ProxyJump of %s leads back to itself", e.Host)
		}
		if err != nil {
			return id, err
		}
		through, err := c.resolve(e)
		if err == nil {
			id, err = c.identify(through, jumps+1)
		}
		if err != nil {
			return id, err
		}
		s.ProxyJump = []string{string(id[:])}
	}
	return sha256.Sum256(fmt.Appendf(nil, "%#v", s)), nil
}

// lastHop is the endpoint of the last jump host, reached through those before it.
func lastHop(s config.HostConfig) (endpoint, error) {
	last := len(s.ProxyJump) - 1
	e, err := hop(s.ProxyJump[last], s.ProxyJump[:last])
	if err != nil {
		return e, &remote.Error{Class: remote.Configuration, Err: err}
	}
	return e, nil
}

// sharedHop returns the sharedConn of a jump host: the same one for all of its spellings,
// and for the host of the fleet that is this jump host, if there is one.
func (c *Client) sharedHop(e endpoint) (*sharedConn, error) {
	s, err := c.resolve(e)
	if err != nil {
		return nil, err
	}
	id, err := c.identify(s, 0)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	known := c.hops[id]
	c.mu.Unlock()
	if known != nil {
		return known, nil
	}
	p, err := c.shared(e)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.hops[id]; known != nil {
		return known, nil
	}
	p.lent = true
	c.hops[id] = p
	return p, nil
}

// lender returns the sharedConn of the jump host with the same routeID, if p, a host of the
// fleet, may use its connection: no other host of the fleet does. It returns nil if p has to
// log in itself; the hosts behind it then use p's connection.
func (c *Client) lender(p *sharedConn, id routeID) *sharedConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch known := c.hops[id]; {
	case known == nil:
		c.hops[id] = p
	case known != p && known.lent && (known.borrower == nil || known.borrower == p):
		known.borrower = p
		return known
	}
	return nil
}
