package sshclient_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// hangup closes a new connection at once.
func hangup(net.Conn, int32) bool { return false }

// reset closes it without the usual farewell.
func reset(conn net.Conn, _ int32) bool {
	_ = conn.(*net.TCPConn).SetLinger(0)
	return false
}

// wait holds it until the client has enough.
func wait(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

var connectFaults = map[string]struct {
	prepare func(*fake)
	host    remote.Host
	config  []string
	class   remote.Class
	says    string
}{
	"connection refused": {host: remote.Host{Name: "gpu", Port: 1}, class: remote.Unreachable, says: "connection refused"},
	"no such name":       {host: remote.Host{Name: "gpu", Address: "gpu-that-is-not.invalid"}, class: remote.Unreachable, says: "gpu-that-is-not.invalid"},
	"a silent listener": {
		prepare: func(f *fake) { f.accept = func(conn net.Conn, _ int32) bool { wait(conn); return false } },
		class:   remote.Timeout, says: "connected to",
	},
	"silence after the banner": {
		prepare: func(f *fake) {
			f.accept = func(conn net.Conn, _ int32) bool {
				_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_9.6\r\n")
				wait(conn)
				return false
			}
		},
		class: remote.Timeout, says: "did not finish the login",
	},
	"closed at once, always": {prepare: func(f *fake) { f.accept = hangup }, class: remote.Unreachable, says: "MaxStartups"},
	"reset at once, always":  {prepare: func(f *fake) { f.accept = reset }, class: remote.Unreachable, says: "MaxStartups"},
	"something else answers": {
		prepare: func(f *fake) {
			f.accept = func(conn net.Conn, _ int32) bool {
				_, _ = io.WriteString(conn, strings.Repeat("HTTP/1.1 400 Bad Request\x1b[2J\r\n", 100000))
				return false
			}
		},
		class: remote.Unreachable, says: "",
	},
	"an unknown key": {
		prepare: func(f *fake) {
			require.NoError(f.t, os.WriteFile(filepath.Join(f.dir, "known_hosts"), nil, 0o600))
		},
		class: remote.HostKey, says: "ssh-keyscan -p ",
	},
	"an unknown key and checking off": {
		prepare: func(f *fake) {
			require.NoError(f.t, os.WriteFile(filepath.Join(f.dir, "known_hosts"), nil, 0o600))
		},
		config: []string{"StrictHostKeyChecking no"},
		class:  remote.HostKey, says: "SHA256:",
	},
	"a changed key": {
		prepare: func(f *fake) { other, _ := newKey(f.t); f.known(other.PublicKey()) },
		class:   remote.HostKeyChanged, says: "HAS CHANGED",
	},
	"a changed key and accept-new": {
		prepare: func(f *fake) { other, _ := newKey(f.t); f.known(other.PublicKey()) },
		config:  []string{"StrictHostKeyChecking accept-new"},
		class:   remote.HostKeyChanged, says: "nothing was sent",
	},
	"a revoked key": {
		prepare: func(f *fake) {
			name := filepath.Join(f.dir, "known_hosts")
			known, err := os.ReadFile(name)
			require.NoError(f.t, err)
			require.NoError(f.t, os.WriteFile(name, append(known, "@revoked * "+string(ssh.MarshalAuthorizedKey(f.key.PublicKey()))...), 0o600))
		},
		class: remote.HostKeyChanged, says: "REVOKED",
	},
	"no key is accepted":                  {prepare: func(f *fake) { f.refuse = true }, class: remote.Auth, says: "tried ssh-ed25519 SHA256:"},
	"there is no key":                     {config: []string{"IdentityFile none", "IdentitiesOnly yes"}, prepare: func(f *fake) { require.NoError(f.t, os.Remove(filepath.Join(f.dir, "id"))) }, class: remote.Auth, says: "no key to offer"},
	"a configuration that cannot be read": {config: []string{"", "Prot 22"}, class: remote.Configuration, says: ":2: "},
	"a jump to itself":                    {config: []string{"ProxyJump gpu"}, class: remote.Configuration, says: "leads back"},
	"a proxy that fails":                  {config: []string{"ProxyCommand echo no way >&2; exit 1"}, class: remote.Unreachable, says: "no way"},
	"an invalid host name":                {host: remote.Host{Name: "-oProxyCommand=id"}, class: remote.Configuration, says: "not a host name"},
}

// TestConnectFaults are those that end before a command: nothing was done.
func TestConnectFaults(t *testing.T) {
	needsAccount(t)
	for name, tt := range connectFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFake(t, tt.prepare)
			c := newClient(t, sshclient.Options{ConfigFile: f.config(tt.config...), ConnectTimeout: 3 * time.Second})
			host := tt.host
			if host.Name == "" {
				host = gpu
			}
			_, err := c.Run(t.Context(), host, snapshot)
			requireClass(t, tt.class, err)
			require.ErrorContains(t, err, tt.says)
			require.NotContains(t, err.Error(), "\x1b")
			if tt.class == remote.HostKey || tt.class == remote.HostKeyChanged {
				require.Zero(t, f.logins.Load(), "no login before the key is right")
			}
		})
	}
}
