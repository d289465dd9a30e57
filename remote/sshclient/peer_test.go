package sshclient_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// TestPeer: names that lead to one sshd have one Peer, whatever ssh_config makes
// of them; another sshd has another.
func TestPeer(t *testing.T) {
	f, other := startFake(t, nil), startFake(t, nil)
	key := ssh.FingerprintSHA256(f.key.PublicKey())
	c := newClient(t, sshclient.Options{ConfigFile: f.config(fmt.Sprintf("Host alias\n HostName %s\n Port %d", f.address().IP, f.address().Port))})
	direct := remote.Peer{Address: f.address().String(), HostKey: key}
	for _, tt := range []struct {
		name string
		host remote.Host
		want remote.Peer
	}{
		{"by its name", gpu, direct},
		{"by an alias of ssh_config", remote.Host{Name: "alias"}, direct},
		{"by its address", remote.Host{Name: f.address().IP.String(), Port: f.address().Port}, direct},
		{"by an address in hosts.yaml", remote.Host{Name: "elsewhere", Address: f.address().IP.String(), Port: f.address().Port}, direct},
		{"as another user", remote.Host{Name: "gpu-2", User: "bob"}, direct},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, known := c.Peer(tt.host)
			require.False(t, known, "before it was connected to")
			_, err := c.Run(t.Context(), tt.host, snapshot)
			require.NoError(t, err)
			peer, known := c.Peer(tt.host)
			require.True(t, known)
			require.Equal(t, tt.want, peer)
		})
	}
	c = newClient(t, sshclient.Options{ConfigFile: other.config()})
	_, err := c.Run(t.Context(), gpu, snapshot)
	require.NoError(t, err)
	peer, known := c.Peer(gpu)
	require.True(t, known)
	require.NotEqual(t, direct.Address, peer.Address)
	require.NotEqual(t, direct.HostKey, peer.HostKey)
}

// Behind jump hosts and proxies the names stay, with the way that leads there.
func TestPeerBehindJumpHost(t *testing.T) {
	j := startJumps(t)
	c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host gpu-a gpu-b", " ProxyJump first", "Host gpu-c", " ProxyJump second", "Host gpu-d", " ProxyJump none")})
	peers := map[string]remote.Peer{}
	for _, name := range []string{"gpu-a", "gpu-b", "gpu-c", "gpu-d"} {
		_, err := c.Run(t.Context(), remote.Host{Name: name}, sh("true"))
		require.NoError(t, err)
		peer, known := c.Peer(remote.Host{Name: name})
		require.True(t, known)
		peers[name] = peer
	}
	require.Equal(t, peers["gpu-a"], peers["gpu-b"])
	require.Equal(t, "jump first", peers["gpu-a"].Through)
	require.NotEqual(t, peers["gpu-a"], peers["gpu-c"], "an address means something else behind another jump host")
	require.NotEqual(t, peers["gpu-a"], peers["gpu-d"])
}
