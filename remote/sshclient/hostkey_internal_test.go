package sshclient

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/remote/sshclient/hostkeys"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func testKey(t *testing.T, seed string) ssh.PublicKey {
	t.Helper()
	return proctest.Try(ssh.NewPublicKey(ed25519.NewKeyFromSeed([]byte(fmt.Sprintf("%032s", seed))).Public())).OK(t)
}

func line(name string, key ssh.PublicKey) string {
	return name + " " + string(ssh.MarshalAuthorizedKey(key))
}

// shown is what a client with the options makes of a key that a host shows.
func shown(t *testing.T, o Options, host resolvedEndpoint, peer net.Addr, key ssh.PublicKey) error {
	t.Helper()
	o.ConfigFile, o.OpenSSH = "none", "none"
	c := New(o)
	defer c.Close()
	return proctest.Try(c.hostKeyCheck(t.Context(), host)).OK(t).callback("", peer, key)
}

// knows is the host gpu, whose known_hosts has this content.
func knows(t *testing.T, content string) resolvedEndpoint {
	t.Helper()
	known := filepath.Join(t.TempDir(), "known_hosts")
	require.NoError(t, os.WriteFile(known, []byte(content), 0o600))
	return resolvedEndpoint{HostConfig: config.HostConfig{
		HostName: "gpu", Port: 22, CheckHostIP: true, UserKnownHosts: []string{known},
	}}
}

func TestInsecureHostKeys(t *testing.T) {
	right, wrong := testKey(t, "right"), testKey(t, "wrong")
	for name, content := range map[string]string{"unknown": "", "stale": line("gpu", wrong), "revoked": line("@revoked gpu", right)} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, shown(t, Options{InsecureHostKeys: true}, knows(t, content), &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, right))
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
			target := knows(t, tt.known)
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

// TestTheNextStepOfAChangedKey: the command removes the old key from the file that has it, under the name that it
// has there. The host is unknown then.
func TestTheNextStepOfAChangedKey(t *testing.T) {
	right, wrong := testKey(t, "right"), testKey(t, "wrong")
	port := func(t *resolvedEndpoint) { t.Port = 2222 }
	for name, tt := range map[string]struct {
		user, global string
		change       func(*resolvedEndpoint)
		left         string // in the files
	}{
		"the user's file":  {user: line("gpu", wrong) + line("other", right), left: line("other", right)},
		"the file for all": {user: line("other", right), global: line("gpu", wrong), left: line("other", right)},
		"both":             {user: line("gpu", wrong), global: line("gpu", wrong)},
		"a port":           {global: line("[gpu]:2222", wrong) + line("gpu", right), change: port, left: line("gpu", right)},
		"a hashed name":    {global: line(knownhosts.HashHostname("[gpu]:2222"), wrong), change: port},
		"an alias":         {global: line("alias", wrong), change: func(t *resolvedEndpoint) { t.HostKeyAlias, t.Port = "alias", 2222 }},
		"of the address":   {global: line("gpu", right) + line("[192.0.2.1]:2222", wrong), change: func(t *resolvedEndpoint) { t.CheckHostIP, t.Port = true, 2222 }, left: line("gpu", right)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a folder")
			require.NoError(t, os.Mkdir(dir, 0o700))
			files := []string{dir + "/user", dir + "/global"}
			for i, content := range []string{tt.user, tt.global} {
				require.NoError(t, os.WriteFile(files[i], []byte(content), 0o644))
			}
			target := resolvedEndpoint{HostConfig: config.HostConfig{HostName: "gpu", Port: 22, UserKnownHosts: files[:1], GlobalKnownHosts: files[1:]}}
			if tt.change != nil {
				tt.change(&target)
			}
			peer := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: target.Port}
			err := shown(t, Options{}, target, peer, right)
			var changed *hostkeys.Changed
			require.ErrorAs(t, err, &changed)
			command := removeCommand(changed)
			require.Contains(t, remote.NextStepOf(err), command)
			proctest.Output(t, exec.Command("sh", "-c", command))
			var left string
			for _, file := range files {
				left += proctest.ReadText(t, file)
			}
			require.Equal(t, tt.left, left)
			if err := shown(t, Options{}, target, peer, right); err != nil {
				require.ErrorAs(t, err, new(*hostkeys.Unknown))
			}
		})
	}
}

func TestRemoveCommand(t *testing.T) {
	etc := hostkeys.Position{File: "/etc/genv/ssh_known_hosts", Line: 4}
	for want, changed := range map[string]hostkeys.Changed{
		"sudo ssh-keygen -R gpu-17.lab -f /etc/genv/ssh_known_hosts && sudo chmod a+r /etc/genv/ssh_known_hosts": {Name: "gpu-17.lab", Known: []hostkeys.Position{etc, {File: etc.File, Line: 5}}},
		"ssh-keygen -R '[gpu]:2222' -f '/home/a b/.ssh/known_hosts'":                                             {Name: "[gpu]:2222", Known: []hostkeys.Position{{File: "/home/a b/.ssh/known_hosts", Line: 1}}},
		"correct KnownHostsCommand /bin/keys:1":                                                                  {Name: "gpu", Known: []hostkeys.Position{{File: "KnownHostsCommand /bin/keys", Line: 1}}},
	} {
		require.Equal(t, want, removeCommand(&changed))
	}
	revoked := changedError(errors.New("x"), &hostkeys.Changed{Name: "gpu", Known: []hostkeys.Position{etc}, Revoked: true})
	require.NotContains(t, remote.NextStepOf(revoked), "ssh-keygen", "the mark stays")
}

// TestAddCommand: an unknown key goes to the file for all accounts where that is used.
func TestAddCommand(t *testing.T) {
	key := testKey(t, "right")
	written := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	direct := config.HostConfig{HostName: "gpu", Port: 2222, UserKnownHosts: []string{"/home/a b/known"}}
	jump, alias, none := direct, direct, direct
	jump.ProxyJump, alias.HostKeyAlias, none.UserKnownHosts = []string{"j"}, "alias", nil
	for name, tt := range map[string]struct {
		host       config.HostConfig
		own, toAll string
	}{
		"direct":       {direct, "ssh-keyscan -p 2222 gpu >> '/home/a b/known'", "ssh-keyscan -p 2222 gpu | sudo tee -a /etc/genv/ssh_known_hosts"},
		"no own file":  {none, "ssh-keyscan -p 2222 gpu >> ~/.ssh/known_hosts", "ssh-keyscan -p 2222 gpu | sudo tee -a /etc/genv/ssh_known_hosts"},
		"a jump host":  {jump, "ssh -o StrictHostKeyChecking=ask g true", "echo '[gpu]:2222 " + written + "' | sudo tee -a /etc/genv/ssh_known_hosts"},
		"HostKeyAlias": {alias, "ssh -o StrictHostKeyChecking=ask g true", "echo 'alias " + written + "' | sudo tee -a /etc/genv/ssh_known_hosts"},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Options{ConfigFile: "none", OpenSSH: "none"})
			defer c.Close()
			check, err := c.hostKeyCheck(t.Context(), resolvedEndpoint{endpoint: endpoint{Lookup: config.Lookup{Host: "g"}}, HostConfig: tt.host})
			require.NoError(t, err)
			require.Equal(t, tt.own, check.addCommand(key, false))
			require.Equal(t, tt.toAll, check.addCommand(key, true))
		})
	}
}

// TestKnownHostsOfSSH: ssh(1) is named the file for all accounts where our own client reads it.
func TestKnownHostsOfSSH(t *testing.T) {
	require.Nil(t, knownHostsOptions([]string{"/dev/null"}), "the configuration leaves it out")
	require.Equal(t, []string{"-o", "GlobalKnownHostsFile=/etc/ssh/ssh_known_hosts /x /etc/genv/ssh_known_hosts"},
		knownHostsOptions([]string{"/etc/ssh/ssh_known_hosts", "/x"}))
}

// After the login, a connection takes the key of the login alone.
func TestTheKeyOfALogin(t *testing.T) {
	right, other := testKey(t, "right"), testKey(t, "other")
	known := filepath.Join(t.TempDir(), "known_hosts")
	require.NoError(t, os.WriteFile(known, []byte(line("gpu", right)+line("gpu", other)), 0o600))
	c := New(Options{ConfigFile: "none", OpenSSH: "none"})
	defer c.Close()
	check, err := c.hostKeyCheck(t.Context(), resolvedEndpoint{HostConfig: config.HostConfig{HostName: "gpu", Port: 22, UserKnownHosts: []string{known}}})
	require.NoError(t, err)
	shown := &loginKey{check: check, known: func() {}}
	unknown := testKey(t, "unknown")
	require.Error(t, shown.callback("", nil, unknown))
	require.NoError(t, shown.callback("", nil, right))
	require.NoError(t, shown.callback("", nil, right), "before the end of the login")
	require.ErrorIs(t, shown.callback("", nil, other), errOtherKey, "also one that is known")
	shown.loggedIn()
	require.NoError(t, shown.callback("", nil, right))
	require.ErrorIs(t, shown.callback("", nil, other), errOtherKey)
	require.ErrorIs(t, shown.callback("", nil, unknown), errOtherKey)

	none := &loginKey{check: check, known: func() {}}
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
