package sshclient

import (
	"net"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
)

var _ remote.Peers = (*Client)(nil)

// Peer implements remote.Peers: it is taken from the connection itself, after
// all that ssh_config and the resolver made of the name.
func (c *Client) Peer(h remote.Host) (remote.Peer, bool) {
	c.mu.Lock()
	p := c.peers[c.endpointOf(h)]
	c.mu.Unlock()
	if p == nil {
		return remote.Peer{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link == nil {
		return remote.Peer{}, false
	}
	return p.link.peer, p.link.peer.Known()
}

// peerOf is what a connection led to. Where something is between, the address
// of the connection is not that of the host.
func peerOf(t target, conn net.Conn, key ssh.PublicKey) remote.Peer {
	if key == nil {
		return remote.Peer{}
	}
	p := remote.Peer{Address: strings.ToLower(t.address()), HostKey: ssh.FingerprintSHA256(key)}
	switch {
	case len(t.ProxyJump) > 0:
		p.Through = "jump " + strings.Join(t.ProxyJump, ",")
	case t.ProxyCommand != "":
		p.Through = "command " + t.ProxyCommand
	default:
		p.Address = conn.RemoteAddr().String()
	}
	return p
}
