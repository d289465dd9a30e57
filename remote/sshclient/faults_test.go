package sshclient_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

var snapshot = gpu.Genv("usage", "snapshot")

// TestConnectFaults are those that end before a command: nothing was done.
func TestConnectFaults(t *testing.T) {
	hangup := func(conn net.Conn, _ int32) bool { return false }
	reset := func(conn net.Conn, _ int32) bool {
		_ = conn.(*net.TCPConn).SetLinger(0)
		return false
	}
	wait := func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) } // until the client has enough
	for name, tt := range map[string]struct {
		prepare func(*fake)
		host    remote.Host
		config  []string
		class   remote.Class
		says    string
	}{
		"nobody listens": {host: remote.Host{Name: "gpu", Port: 1}, class: remote.Unreachable, says: "connection refused"},
		"no such name":   {host: remote.Host{Name: "gpu", Address: "gpu-that-is-not.invalid"}, class: remote.Unreachable, says: "gpu-that-is-not.invalid"},
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
		"a name that is no host":              {host: remote.Host{Name: "-oProxyCommand=id"}, class: remote.Configuration, says: "not a host name"},
	} {
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

// TestCommandFaults are those of a command that was started.
func TestCommandFaults(t *testing.T) {
	flood := func(w func(ssh.Channel) io.Writer) func(ssh.Channel, string, net.Conn) {
		return func(ch ssh.Channel, _ string, _ net.Conn) {
			block := bytes.Repeat([]byte("x"), 1<<20)
			for range 1024 {
				if _, err := w(ch).Write(block); err != nil {
					return
				}
			}
			exit(ch, 0)
		}
	}
	for name, tt := range map[string]struct {
		command func(ssh.Channel, string, net.Conn)
		class   remote.Class
		says    string
	}{
		"sudo wants a password":   {says("sudo: a password is required\n", 1), remote.Sudo, "wants a password"},
		"sudo wants a terminal":   {says("sudo: a terminal is required to read the password; either use the -S option\nsudo: a password is required\n", 1), remote.Sudo, "wants a password"},
		"not in sudoers":          {says("alice is not in the sudoers file.  This incident will be reported.\n", 1), remote.Sudo, "does not allow"},
		"sudo for other commands": {says("Sorry, user alice is not allowed to execute '/usr/bin/genv' as root on gpu.\n", 1), remote.Sudo, "does not allow"},
		"no sudo":                 {says("bash: line 1: sudo: command not found\n", 127), remote.Sudo, "no sudo"},
		"no genv under sudo":      {says("sudo: genv: command not found\n", 1), remote.GenvMissing, "not there"},
		"no genv":                 {says("bash: line 1: genv: command not found\n", 127), remote.GenvMissing, "genv: command not found"},
		"genv fails":              {says("cannot read \x1b]0;x\x07state\n", 4), remote.CommandFailed, `exit status 4: cannot read \x1b]0;x\astate`},
		"genv is killed": {func(ch ssh.Channel, _ string, _ net.Conn) {
			_, _ = ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
				Name      string
				Core      bool
				Msg, Lang string
			}{Name: "KILL"}))
		}, remote.CommandFailed, "signal KILL"},
		"a flood on stdout":     {flood(func(ch ssh.Channel) io.Writer { return ch }), remote.InvalidOutput, "stdout"},
		"a flood on stderr":     {flood(func(ch ssh.Channel) io.Writer { return ch.Stderr() }), remote.InvalidOutput, "stderr"},
		"no exit status":        {func(ssh.Channel, string, net.Conn) {}, remote.OutcomeUnknown, "without a status"},
		"the connection is cut": {func(_ ssh.Channel, _ string, conn net.Conn) { _ = conn.Close() }, remote.OutcomeUnknown, "cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, func(f *fake) { f.command = tt.command })
			c := newClient(t, sshclient.Options{ConfigFile: f.config(), MaxStdout: 4 << 20})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			out, err := c.Run(t.Context(), gpu, snapshot)
			runtime.ReadMemStats(&after)
			requireClass(t, tt.class, err)
			require.ErrorContains(t, err, tt.says)
			require.LessOrEqual(t, len(out.Stdout), 4<<20)
			require.LessOrEqual(t, len(out.Stderr), 256<<10)
			require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(64<<20), "memory is bounded")
		})
	}
	t.Run("the host refuses commands", func(t *testing.T) {
		f := startFake(t, nil)
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		_, err := c.Run(t.Context(), gpu, remote.Command{Args: []string{"refused"}})
		requireClass(t, remote.CommandFailed, err)
	})
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
		c := newClient(t, sshclient.Options{ConfigFile: f.config(), CommandTimeout: 300 * time.Millisecond})
		out, err := c.Run(t.Context(), gpu, remote.Command{Args: []string{"hang"}, Stdin: make([]byte, 16<<20)})
		requireClass(t, remote.Timeout, err)
		require.Equal(t, "half", string(out.Stdout), "what had arrived")
		_, err = c.Run(t.Context(), gpu, remote.Command{Args: []string{"true"}})
		require.NoError(t, err)
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
		require.NoError(t, c.Close())
		running.Wait()
		_, err := c.Run(t.Context(), gpu, snapshot)
		requireClass(t, remote.Cancelled, err)
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
		c := newClient(t, sshclient.Options{ConfigFile: f.config(), KeepAlive: 50 * time.Millisecond, CommandTimeout: time.Minute})
		_, err := c.Run(t.Context(), gpu, snapshot)
		require.NoError(t, err)
		close(frozen)
		_, err = c.Run(t.Context(), gpu, snapshot)
		if err != nil { // asked in the moment between the freeze and its discovery
			requireClass(t, remote.OutcomeUnknown, err)
		}
		_, err = c.Run(t.Context(), gpu, snapshot)
		require.NoError(t, err, "a fresh connection")
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
		for err == nil { // hold what came until the connection ends
			_, err = f.Conn.Read(make([]byte, 1024))
		}
		return 0, err
	default:
		return n, err
	}
}

func TestBusyServers(t *testing.T) {
	t.Run("connections dropped at random are tried again", func(t *testing.T) {
		f := startFake(t, func(f *fake) {
			f.accept = func(_ net.Conn, number int32) bool { return number > 3 }
		})
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		_, err := c.Run(t.Context(), gpu, snapshot)
		require.NoError(t, err)
		require.EqualValues(t, 4, f.conns.Load())
	})
	t.Run("a refused session waits on the same connection", func(t *testing.T) {
		f := startFake(t, func(f *fake) { f.session = func(number int32) bool { return number < 4 } })
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		_, err := c.Run(t.Context(), gpu, snapshot)
		require.NoError(t, err)
		require.EqualValues(t, 1, f.conns.Load())
	})
	t.Run("sessions refused for ever", func(t *testing.T) {
		f := startFake(t, func(f *fake) { f.session = func(int32) bool { return true } })
		c := newClient(t, sshclient.Options{ConfigFile: f.config(), CommandTimeout: 300 * time.Millisecond})
		_, err := c.Run(t.Context(), gpu, snapshot)
		requireClass(t, remote.Timeout, err)
	})
	t.Run("at most two sessions a connection", func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		f := startFake(t, func(f *fake) {
			f.command = func(ch ssh.Channel, _ string, _ net.Conn) {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(5 * time.Millisecond) // long enough for others to come
				mu.Lock()
				now--
				mu.Unlock()
				exit(ch, 0)
			}
		})
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				_, err := c.Run(t.Context(), gpu, snapshot)
				require.NoError(t, err)
			})
		}
		all.Wait()
		require.LessOrEqual(t, most, 2)
		require.EqualValues(t, 1, f.conns.Load())
	})
}

func TestReconnecting(t *testing.T) {
	t.Run("a connection that died in between is replaced without a word", func(t *testing.T) {
		f := startFake(t, nil)
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		for range 3 {
			_, err := c.Run(t.Context(), gpu, snapshot)
			require.NoError(t, err)
			f.drop()
		}
		require.GreaterOrEqual(t, f.conns.Load(), int32(3))
	})
	t.Run("a refused login is not tried again for minutes", func(t *testing.T) {
		f := startFake(t, func(f *fake) { f.refuse = true })
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		for range 5 {
			_, err := c.Run(t.Context(), gpu, snapshot)
			requireClass(t, remote.Auth, err)
		}
		require.EqualValues(t, 1, f.conns.Load())
	})
	t.Run("a changed key is no reason to call again and again", func(t *testing.T) {
		f := startFake(t, func(f *fake) { other, _ := newKey(f.t); f.known(other.PublicKey()) })
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		for range 5 {
			_, err := c.Run(t.Context(), gpu, snapshot)
			requireClass(t, remote.HostKeyChanged, err)
		}
		require.EqualValues(t, 1, f.conns.Load())
	})
	t.Run("known_hosts that was mended counts at once", func(t *testing.T) {
		f := startFake(t, func(f *fake) {
			require.NoError(f.t, os.WriteFile(filepath.Join(f.dir, "known_hosts"), nil, 0o600))
		})
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		_, err := c.Run(t.Context(), gpu, snapshot)
		requireClass(t, remote.HostKey, err)
		f.known(f.key.PublicKey())
		_, err = c.Run(t.Context(), gpu, snapshot)
		require.NoError(t, err)
	})
}
