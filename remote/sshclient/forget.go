package sshclient

import "github.com/seed-3119e985/genv/remote"

// Forget closes the connections to hosts that left the fleet. What runs there
// ends; who goes through one of them as a jump host connects again.
func (c *Client) Forget(hosts ...remote.Host) {
	for _, h := range hosts {
		if p := c.remove(c.endpointOf(h)); p != nil {
			p.close()
		}
	}
}

// Disconnect closes the connection to a host, such as one that does not answer any
// more. The next command makes another one.
func (c *Client) Disconnect(h remote.Host) {
	c.mu.Lock()
	p := c.peers[c.endpointOf(h)]
	c.mu.Unlock()
	if p != nil {
		p.disconnect()
	}
}

// remove takes the peer for an endpoint out of the client, if there is one.
func (c *Client) remove(e endpoint) *peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[e]
	delete(c.peers, e)
	return p
}
