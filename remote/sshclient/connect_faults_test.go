package sshclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
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
		prepare: func(f *fake) { f.known() },
		class:   remote.HostKey, says: "no key of ",
	},
	"an unknown key and checking off": {
		prepare: func(f *fake) { f.known() },
		config:  []string{"StrictHostKeyChecking no"},
		class:   remote.HostKey, says: "SHA256:",
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
			known := proctest.ReadFile(f.t, name)
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
	proctest.NeedSSH(t)
	for name, tt := range connectFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFake(t, tt.prepare)
			c := newClient(t, sshclient.Options{ConfigFile: f.config(tt.config...), ConnectTimeout: 3 * time.Second})
			host := tt.host
			if host.Name == "" {
				host = gpu
			}
			require.NotContains(t, failure(t, c, host, snapshot, tt.class, tt.says).Error(), "\x1b")
			if tt.class == remote.HostKey || tt.class == remote.HostKeyChanged {
				require.Zero(t, f.logins.Load(), "no login before the key is right")
			}
		})
	}
}

func TestDeadlines(t *testing.T) {
	t.Run("a command that hangs", func(t *testing.T) {
		f := startFake(t, func(f *fake) {
			f.command = func(ch ssh.Channel, line string, _ net.Conn) {
				if line == "true" {
					exit(ch, 0)
					return
				}
				_, _ = io.WriteString(ch, "half")
				<-f.stop
			}
		})
		c := newClient(t, sshclient.Options{ConfigFile: f.config(), CommandTimeout: 2 * time.Second})
		out, err := c.Run(t.Context(), gpu, remote.Command{Args: []string{"hang"}, Stdin: make([]byte, 16<<20)})
		requireClass(t, remote.Timeout, err)
		require.Equal(t, "half", string(out.Stdout), "what had arrived")
		runs(t, c, gpu, remote.Command{Args: []string{"true"}})
	})
	t.Run("the caller stops", func(t *testing.T) {
		f := startFake(t, func(f *fake) { f.command = f.hang })
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(200*time.Millisecond, cancel)
		_, err := c.Run(ctx, gpu, snapshot)
		requireClass(t, remote.Cancelled, err)
	})
	t.Run("the client is closed", func(t *testing.T) {
		started := make(chan struct{})
		f := startFake(t, func(f *fake) {
			f.command = func(ssh.Channel, string, net.Conn) { close(started); <-f.stop }
		})
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		var running sync.WaitGroup
		running.Go(func() {
			_, err := c.Run(context.Background(), gpu, snapshot)
			requireClass(t, remote.OutcomeUnknown, err)
		})
		<-started
		c.Close()
		running.Wait()
		fails(t, c, gpu, snapshot, remote.Cancelled)
	})
	t.Run("a peer that freezes is found by keep-alive", func(t *testing.T) {
		frozen := make(chan struct{})
		f := startFake(t, func(f *fake) {
			f.accept = func(conn net.Conn, number int32) bool {
				if number == 1 {
					f.handle(&freezing{Conn: conn, frozen: frozen})
					return false
				}
				return true
			}
		})
		c := newClient(t, sshclient.Options{ConfigFile: f.config(), KeepAlive: 500 * time.Millisecond, CommandTimeout: time.Minute})
		runs(t, c, gpu, snapshot)
		close(frozen)
		_, err := c.Run(t.Context(), gpu, snapshot)
		if err != nil { // asked in the moment between the freeze and its discovery
			requireClass(t, remote.OutcomeUnknown, err)
		}
		proctest.Try(c.Run(t.Context(), gpu, snapshot)).OK(t, "a fresh connection")
		require.EqualValues(t, 2, f.conns.Load())
	})
}

// freezing reads nothing more once it is frozen, as a stopped process would.
type freezing struct {
	net.Conn
	frozen chan struct{}
}

func (f *freezing) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	select {
	case <-f.frozen:
		for err == nil { // keep what came until the connection ends
			_, err = f.Conn.Read(make([]byte, 1024))
		}
		return 0, err
	default:
		return n, err
	}
}

// TestLinesBeforeTheVersion: a server, or a ProxyCommand, may print as much before the version as OpenSSH accepts.
func TestLinesBeforeTheVersion(t *testing.T) {
	for name, tt := range map[string]struct {
		preface string
		fails   remote.Class
	}{
		"a long line":                {strings.Repeat("x", 8192) + "\r\n", ""},
		"many lines":                 {strings.Repeat("Welcome to the bastion\n", 1023), ""},
		"what is almost the version": {"SSH\nSSSH-2.0\nSS\n -SSH-2.0-\n\n", ""},
		"a line that is too long":    {strings.Repeat("x", 9000) + "\n", remote.Unreachable},
		"too many lines":             {strings.Repeat("x\n", 1024), remote.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, func(f *fake) {
				f.accept = func(conn net.Conn, _ int32) bool {
					_, err := io.WriteString(conn, tt.preface)
					return err == nil
				}
			})
			c := newClient(t, sshclient.Options{ConfigFile: f.config()})
			_, err := c.Run(t.Context(), gpu, snapshot)
			requireClass(t, tt.fails, err, "the version of an SSH server")
		})
	}
	t.Run("of a ProxyCommand", func(t *testing.T) {
		s := startSSHD(t)
		noisy := fmt.Sprintf("ProxyCommand sh -c 'head -c 5000 /dev/zero | tr \"\\\\0\" x; echo; exec ssh -F none -o StrictHostKeyChecking=yes -o UserKnownHostsFile=%s -i %s -W %%h:%%p root@%s -p %d'",
			s.file("known_hosts"), s.file("id"), s.address, s.port)
		c := newClient(t, sshclient.Options{ConfigFile: s.config(t, noisy)})
		runs(t, c, gpu, sh("true"))
	})
}

// TestManyHostsAtOneServer has sshd's own limit on logins under way, in its strictest form: beyond ten, every
// connection is dropped. What was dropped is known as such, so that it can be tried again.
func TestManyHostsAtOneServer(t *testing.T) {
	s := startSSHD(t, "MaxStartups 10:100:10")
	c := newClient(t, sshclient.Options{ConfigFile: s.config(t), ConnectTimeout: time.Minute})
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			host := remote.Host{Name: fmt.Sprintf("gpu-%d", i)}
			_, err := c.Run(t.Context(), host, sh("true"))
			for errors.Is(err, remote.ErrBusy) {
				time.Sleep(10 * time.Millisecond)
				_, err = c.Run(t.Context(), host, sh("true"))
			}
			require.NoError(t, err)
		})
	}
	all.Wait()
	require.Equal(t, 60, logins(t, s))
}

// TestSlowLogin: after the exchange of keys a login has a time of its own, and so has its first session. Waiting
// for a turn takes none of it.
func TestSlowLogin(t *testing.T) {
	proctest.NeedSSH(t)
	slow := func(d time.Duration) func(*fake) {
		return func(f *fake) { f.session = func(int32) bool { time.Sleep(d); return false } }
	}
	for name, tt := range map[string]struct {
		prepare func(*fake)
		login   time.Duration
		fails   remote.Class
	}{
		"the account":                 {prepare: func(f *fake) { f.accepting = 6 * time.Second }},
		"the session":                 {prepare: slow(6 * time.Second)},
		"the account, for too long":   {prepare: func(f *fake) { f.accepting = 8 * time.Second }, login: time.Second, fails: remote.Timeout},
		"the session, for too long":   {prepare: slow(12 * time.Second), login: 700 * time.Millisecond, fails: remote.Timeout},
		"a silent listener, as ever":  {prepare: func(f *fake) { f.accept = func(conn net.Conn, _ int32) bool { wait(conn); return false } }, fails: remote.Timeout},
		"more hosts than have a turn": {prepare: func(f *fake) { f.accepting = 2 * time.Second }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFake(t, tt.prepare)
			c := newClient(t, sshclient.Options{
				ConfigFile: f.config(), ConnectTimeout: 5 * time.Second, CommandTimeout: 5 * time.Second,
				LoginTimeout: tt.login,
			})
			var all sync.WaitGroup
			for i := range 24 {
				all.Go(func() {
					host := remote.Host{Name: fmt.Sprintf("gpu-%d", i)}
					_, err := c.Run(t.Context(), host, snapshot)
					requireClass(t, tt.fails, err)
					if i == 0 && err == nil {
						require.Greater(t, c.LoginTook(host), f.accepting)
					}
				})
			}
			all.Wait()
		})
	}
}
