package sshclient

import (
	"net"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
)

// Peer is the machine of the host's last connection, with the addresses of the
// connection itself; false if there was none.
func (c *Client) Peer(h remote.Host) (remote.Peer, bool) {
	p := c.existing(h)
	if p == nil {
		return remote.Peer{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return remote.Peer{}, false
	}
	return p.conn.peer, p.conn.peer.Known()
}

// peerOf is the machine that a connection led to. Behind a jump host or a
// ProxyCommand, the address of the connection is not that of the host.
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

// expectedPeer is the machine that ssh(1) leads to, with the key that is known of the host.
func expectedPeer(t target, key ssh.PublicKey) remote.Peer {
	if key == nil {
		return remote.Peer{}
	}
	return remote.Peer{Address: strings.ToLower(t.address()), Through: "ssh", HostKey: ssh.FingerprintSHA256(key)}
}
