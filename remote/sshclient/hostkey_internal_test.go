package sshclient

import (
	"crypto/ed25519"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

func testKey(t *testing.T, seed string) ssh.PublicKey {
	t.Helper()
	key, err := ssh.NewPublicKey(ed25519.NewKeyFromSeed([]byte(fmt.Sprintf("%032s", seed))).Public())
	require.NoError(t, err)
	return key
}

// line is a line of known_hosts.
func line(name string, key ssh.PublicKey) string {
	return name + " " + string(ssh.MarshalAuthorizedKey(key))
}

// shown is what a client with the options makes of a key that a host shows.
func shown(t *testing.T, o Options, host resolvedEndpoint, peer net.Addr, key ssh.PublicKey) error {
	t.Helper()
	o.ConfigFile, o.OpenSSH = "none", "none"
	c, err := New(o)
	require.NoError(t, err)
	defer c.Close()
	check, err := c.hostKeyCheck(t.Context(), host)
	require.NoError(t, err)
	return check.callback("", peer, key)
}

func TestInsecureHostKeys(t *testing.T) {
	right, wrong := testKey(t, "right"), testKey(t, "wrong")
	for name, content := range map[string]string{"unknown": "", "stale": line("gpu", wrong), "revoked": line("@revoked gpu", right)} {
		t.Run(name, func(t *testing.T) {
			known := filepath.Join(t.TempDir(), "known_hosts")
			require.NoError(t, os.WriteFile(known, []byte(content), 0o600))
			host := resolvedEndpoint{HostConfig: config.HostConfig{HostName: "gpu", Port: 22, CheckHostIP: true, UserKnownHosts: []string{known}}}
			require.NoError(t, shown(t, Options{InsecureHostKeys: true}, host, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, right))
		})
	}
}

// TestCheckHostIP: what ssh does needs an address that is not loopback.
func TestCheckHostIP(t *testing.T) {
	right, wrong, address := testKey(t, "right"), testKey(t, "wrong"), net.ParseIP("192.0.2.1")
	for name, tt := range map[string]struct {
		known   string
		change  func(*resolvedEndpoint)
		peer    net.Addr
		refused bool
	}{
		"the address is unknown":    {line("gpu", right), nil, nil, false},
		"the address is right":      {line("gpu", right) + line("192.0.2.1", right), nil, nil, false},
		"the address is stale":      {line("gpu", right) + line("192.0.2.1", wrong), nil, nil, true},
		"another address":           {line("gpu", right) + line("192.0.2.2", wrong), nil, nil, false},
		"revoked for the address":   {line("gpu", right) + line("@revoked 192.0.2.1", right), nil, nil, true},
		"not asked for":             {line("gpu", right) + line("192.0.2.1", wrong), func(t *resolvedEndpoint) { t.CheckHostIP = false }, nil, false},
		"with a port":               {line("[gpu]:2222", right) + line("[192.0.2.1]:2222", wrong), func(t *resolvedEndpoint) { t.Port = 2222 }, nil, true},
		"behind a jump host":        {line("gpu", right) + line("192.0.2.1", wrong), func(t *resolvedEndpoint) { t.ProxyJump = []string{"j"} }, nil, false},
		"behind a ProxyCommand":     {line("gpu", right) + line("192.0.2.1", wrong), func(t *resolvedEndpoint) { t.ProxyCommand = "nc" }, nil, false},
		"loopback":                  {line("gpu", right) + line("127.0.0.1", wrong), nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, false},
		"an address without TCP":    {line("gpu", right), nil, &net.UnixAddr{}, false},
		"only the address is known": {line("192.0.2.1", right), nil, nil, true},
		"stale by KnownHostsCommand": {line("gpu", right), func(t *resolvedEndpoint) {
			t.KnownHostsCommand = strings.Fields("/bin/echo 192.0.2.1 " + line("", wrong))
		}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			known := filepath.Join(t.TempDir(), "known_hosts")
			require.NoError(t, os.WriteFile(known, []byte(tt.known), 0o600))
			target := resolvedEndpoint{HostConfig: config.HostConfig{HostName: "gpu", Port: 22, CheckHostIP: true, UserKnownHosts: []string{known}}}
			if tt.change != nil {
				tt.change(&target)
			}
			if tt.peer == nil {
				tt.peer = &net.TCPAddr{IP: address, Port: target.Port}
			}
			err := shown(t, Options{}, target, tt.peer, right)
			require.Equal(t, tt.refused, err != nil, "%v", err)
			if tt.refused && name != "only the address is known" {
				require.Equal(t, remote.HostKeyChanged, remote.ClassOf(err))
			}
		})
	}
}

// After the login, a connection takes the key of the login alone.
func TestTheKeyOfALogin(t *testing.T) {
	right, other := testKey(t, "right"), testKey(t, "other")
	known := filepath.Join(t.TempDir(), "known_hosts")
	require.NoError(t, os.WriteFile(known, []byte(line("gpu", right)+line("gpu", other)), 0o600))
	c, err := New(Options{ConfigFile: "none", OpenSSH: "none"})
	require.NoError(t, err)
	defer c.Close()
	check, err := c.hostKeyCheck(t.Context(), resolvedEndpoint{HostConfig: config.HostConfig{HostName: "gpu", Port: 22, UserKnownHosts: []string{known}}})
	require.NoError(t, err)
	shown := &loginKey{check: check}
	unknown := testKey(t, "unknown")
	require.Error(t, shown.callback("", nil, unknown))
	require.NoError(t, shown.callback("", nil, right))
	require.NoError(t, shown.callback("", nil, right), "before the end of the login")
	require.ErrorIs(t, shown.callback("", nil, other), errOtherKey, "also one that is known")
	shown.loggedIn()
	require.NoError(t, shown.callback("", nil, right))
	require.ErrorIs(t, shown.callback("", nil, other), errOtherKey)
	require.ErrorIs(t, shown.callback("", nil, unknown), errOtherKey)

	none := &loginKey{check: check}
	none.loggedIn()
	require.ErrorIs(t, none.callback("", nil, right), errOtherKey)
}

// What genv's own SSH lacks is told from what ssh_config doesn't allow.
func TestNegotiationError(t *testing.T) {
	for _, test := range []struct{ what, host, says, next string }{
		{"key exchange", "sntrup761x25519-sha512@openssh.com", "which genv's own SSH lacks", openSSHStep},
		{"client to server MAC", "umac-64@openssh.com", "which genv's own SSH lacks", openSSHStep},
		{"key exchange", "diffie-hellman-group14-sha1", "which KexAlgorithms in ssh_config does not allow", "`KexAlgorithms +NAME`"},
		{"host key", "ssh-rsa", "which HostKeyAlgorithms in ssh_config does not allow", "`HostKeyAlgorithms +NAME`"},
	} {
		err := negotiationError(resolvedEndpoint{}, &ssh.AlgorithmNegotiationError{What: test.what, RequestedAlgorithms: []string{test.host, "ext-info-s"}})
		require.ErrorContains(t, err, test.says)
		require.Contains(t, remote.NextStepOf(err), test.next)
		require.Equal(t, remote.Configuration, err.Class)
	}
}
