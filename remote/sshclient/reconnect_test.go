package sshclient_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestBusyServers(t *testing.T) {
	t.Run("a connection that was dropped at random is worth another try", func(t *testing.T) {
		f := startFake(t, func(f *fake) {
			f.accept = func(_ net.Conn, number int32) bool { return number > 3 }
		})
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		for range 3 {
			require.ErrorIs(t, failure(t, c, gpu, snapshot, remote.Unreachable), remote.ErrBusy)
		}
		runs(t, c, gpu, snapshot)
		require.EqualValues(t, 4, f.conns.Load())
	})
	t.Run("a refused session waits on the same connection", func(t *testing.T) {
		f := startFake(t, func(f *fake) { f.session = func(number int32) bool { return number < 4 } })
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		runs(t, c, gpu, snapshot)
		require.EqualValues(t, 1, f.conns.Load())
	})
	t.Run("sessions refused for ever", func(t *testing.T) {
		f := startFake(t, func(f *fake) { f.session = func(int32) bool { return true } })
		c := newClient(t, sshclient.Options{ConfigFile: f.config(), CommandTimeout: 300 * time.Millisecond})
		fails(t, c, gpu, snapshot, remote.Timeout)
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
				runs(t, c, gpu, snapshot)
			})
		}
		all.Wait()
		require.LessOrEqual(t, most, 2)
		require.EqualValues(t, 1, f.conns.Load())
	})
}

func TestReconnect(t *testing.T) {
	t.Run("a connection that died in between is replaced without a word", func(t *testing.T) {
		f := startFake(t, nil)
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		for range 3 {
			runs(t, c, gpu, snapshot)
			f.drop()
		}
		require.GreaterOrEqual(t, f.conns.Load(), int32(3))
	})
	t.Run("a jump host that refuses the login is asked once for all hosts behind it", func(t *testing.T) {
		f := startFake(t, func(f *fake) { f.refuse = true })
		c := newClient(t, sshclient.Options{ConfigFile: f.config("Host behind*", "  ProxyJump gpu")})
		for i := range 5 {
			fails(t, c, remote.Host{Name: fmt.Sprintf("behind%d", i)}, snapshot, remote.Auth)
		}
		require.EqualValues(t, 1, f.conns.Load())
	})
	t.Run("known_hosts that was mended counts at once", func(t *testing.T) {
		f := startFake(t, func(f *fake) { f.known() })
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		err := failure(t, c, gpu, snapshot, remote.HostKey)
		require.False(t, remote.Outdated(err))
		f.known(f.key.PublicKey())
		require.True(t, remote.Outdated(err))
		runs(t, c, gpu, snapshot)
	})
	t.Run("a certificate that expired is named, and a new one counts at once", func(t *testing.T) {
		var expired, renewed []byte
		f := startFake(t, func(f *fake) {
			now := time.Now()
			_, expired = f.certify(now.Add(-2*time.Hour), now.Add(-time.Hour))
			f.also, renewed = f.certify(now.Add(-time.Hour), now.Add(time.Hour))
			f.login, _ = newKey(f.t) // the key itself is not accepted
		})
		file := filepath.Join(f.dir, "id-cert.pub")
		require.NoError(t, os.WriteFile(file, expired, 0o600))
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		err := failure(t, c, gpu, snapshot, remote.Auth, " expired at 20")
		require.Contains(t, remote.NextStepOf(err), "renew the certificate")
		require.False(t, remote.Outdated(err))
		require.NoError(t, os.WriteFile(file, renewed, 0o600))
		require.True(t, remote.Outdated(err))
		runs(t, c, gpu, snapshot)
	})
}

// certify makes a certificate of the user's key.
func (f *fake) certify(from, until time.Time) (*ssh.Certificate, []byte) {
	authority, _ := newKey(f.t)
	c := &ssh.Certificate{
		Key: f.login.PublicKey(), CertType: ssh.UserCert, ValidPrincipals: []string{"alice"},
		ValidAfter: uint64(from.Unix()), ValidBefore: uint64(until.Unix()),
	}
	require.NoError(f.t, c.SignCert(rand.Reader, authority))
	return c, ssh.MarshalAuthorizedKey(c)
}

// network is a namespace at the other end of a cable that can be unplugged. Names and
// addresses are the test process's own, so that several can run at a time.
type network struct {
	name    string
	address string // of the far end
}

// plug makes the namespace.
func plug(t *testing.T) network {
	t.Helper()
	_, err := exec.LookPath("ip")
	proctest.Need(t, err == nil && os.Getuid() == 0, "iproute2, and root to make a network namespace")
	near, block := fmt.Sprintf("gv%d", os.Getpid()), 4*(os.Getpid()%(1<<14))
	here := fmt.Sprintf("10.213.%d.%d/30", block>>8, block&255+1)
	n := network{fmt.Sprintf("genv-t%d", os.Getpid()), fmt.Sprintf("10.213.%d.%d", block>>8, block&255+2)}
	if out, err := exec.Command("ip", "netns", "add", n.name).CombinedOutput(); err != nil {
		t.Skipf("skipped: this test needs permission to make a network namespace, which this machine refuses: %s", out)
	}
	t.Cleanup(func() {
		_ = exec.Command("ip", "netns", "del", n.name).Run()
		_ = exec.Command("ip", "link", "del", near).Run() // it may have gone with the namespace
	})
	for _, line := range [][]string{
		{"link", "add", near, "type", "veth", "peer", "name", "genv-t1", "netns", n.name},
		{"addr", "add", here, "dev", near},
		{"link", "set", near, "up"},
		{"-n", n.name, "addr", "add", n.address + "/30", "dev", "genv-t1"},
		{"-n", n.name, "link", "set", "lo", "up"},
		{"-n", n.name, "link", "set", "genv-t1", "up"},
	} {
		run(t, "ip", line...)
	}
	return n
}

// cable plugs the far end in or out; what is sent meanwhile is lost.
func (n network) cable(t *testing.T, state string) {
	t.Helper()
	run(t, "ip", "-n", n.name, "link", "set", "genv-t1", state)
}

func TestPartition(t *testing.T) {
	n := plug(t)
	s := &sshd{dir: t.TempDir(), address: n.address, port: 2222, prefix: []string{"ip", "netns", "exec", n.name}}
	s.prepare(t)
	c := newClient(t, sshclient.Options{ConfigFile: s.config(t), KeepAlive: 100 * time.Millisecond, ConnectTimeout: 3 * time.Second})
	session := startCat(t, c, gpu)

	n.cable(t, "down")
	requireClass(t, remote.OutcomeUnknown, session.Wait(), "no sign of life")
	_, err := c.Run(t.Context(), gpu, sh("true"))
	// Whether the kernel reports that there is no route, or drops the packets, is up to it.
	require.Contains(t, []remote.Class{remote.Unreachable, remote.Timeout}, remote.ClassOf(err), "%v", err)

	n.cable(t, "up")
	require.Eventually(t, func() bool {
		_, err := c.Run(t.Context(), gpu, sh("true"))
		return err == nil
	}, 20*time.Second, 50*time.Millisecond, "it comes back by itself")
}

func TestProbe(t *testing.T) {
	f := startFake(t, nil)
	silent := proctest.Try(net.Listen("tcp", "127.0.0.1:0")).OK(t) // connects, and says nothing
	defer silent.Close()
	closed := proctest.Try(net.Listen("tcp", "127.0.0.1:0")).OK(t)
	require.NoError(t, closed.Close())
	at := func(l net.Listener) string {
		return fmt.Sprintf("  HostName 127.0.0.1\n  Port %d", l.Addr().(*net.TCPAddr).Port)
	}
	config := f.config("Host silent", at(silent), "Host closed", at(closed),
		"Host jump", "  ProxyJump gpu", "Host command", "  ProxyCommand true", "Host nowhere", "  HostName nowhere.invalid")
	for name, want := range map[string]remote.Class{
		"gpu": "", "silent": remote.Timeout, "closed": remote.Unreachable, "nowhere": remote.Unreachable, "jump": "no probe", "command": "no probe",
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, sshclient.Options{ConfigFile: config})
			within := time.Minute
			if want == remote.Timeout {
				within = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			switch err := c.Probe(ctx, remote.Host{Name: name}); want {
			case "":
				require.NoError(t, err)
			case "no probe":
				require.ErrorIs(t, err, remote.ErrNoProbe)
			default:
				requireClass(t, want, err)
			}
		})
	}
	require.Zero(t, f.logins.Load(), "a probe does not log in")
}

// BenchmarkProbe is what a host that is down costs each time that it is tried.
func BenchmarkProbe(b *testing.B) {
	closed := proctest.Try(net.Listen("tcp", "127.0.0.1:0")).OK(b)
	require.NoError(b, closed.Close())
	c := newClient(b, sshclient.Options{ConfigFile: "none"})
	port := closed.Addr().(*net.TCPAddr).Port
	b.ReportAllocs()
	for b.Loop() {
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		require.Error(b, c.Probe(ctx, remote.Host{Name: "127.0.0.1", Port: port}))
		cancel()
	}
}

// TestAProbeGoesOnToTheLogin: a server may count a connection without a login as an attack.
func TestAProbeGoesOnToTheLogin(t *testing.T) {
	f := startFake(t, nil)
	c := newClient(t, sshclient.Options{ConfigFile: f.config()})
	for range 3 {
		require.NoError(t, c.Probe(t.Context(), gpu), "the one before is closed")
	}
	runs(t, c, gpu, snapshot)
	require.EqualValues(t, 3, f.conns.Load(), "the last one became the login")
	require.EqualValues(t, 1, f.logins.Load())
}

// TestAHostThatSaysWhy: what it says after a key was offered is the reason, and what it says to every login isn't.
func TestAHostThatSaysWhy(t *testing.T) {
	for _, why := range []string{"", "System is going down.\n\x1b[2J\n"} {
		f := startFake(t, func(f *fake) { f.refuse, f.why, f.banner = true, why, "Authorized users only\n" })
		err := failure(t, newClient(t, sshclient.Options{ConfigFile: f.config()}), gpu, snapshot, remote.Auth)
		require.NotContains(t, err.Error(), "Authorized")
		require.Equal(t, why != "", errors.Is(err, remote.ErrSaidWhy), err)
		if why != "" {
			require.ErrorContains(t, err, `\x1b[2J`)
			require.Contains(t, remote.NextStepOf(err), "says why")
		}
	}
}
