package sshclient_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// controlled is a server that refuses new logins, and an ssh that logged in before and
// runs as ControlMaster, as after a login with a second factor.
type controlled struct {
	*sshd
	path   string // the ControlPath
	conf   string
	master *os.Process
}

func startControlled(t *testing.T) *controlled {
	t.Helper()
	c := &controlled{sshd: startSSHD(t)}
	dir, err := os.MkdirTemp("", "cm") // t.TempDir can be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c.conf = c.config(t, "ControlPath "+dir+"/%C-%r", "ControlMaster auto")
	c.write(t, "authorized2", c.read(t, "authorized"))
	return c
}

// open logs in as the master and then has the server refuse the key.
func (c *controlled) open(t *testing.T) {
	t.Helper()
	c.write(t, "authorized", c.read(t, "authorized2"))
	var said bytes.Buffer
	ssh := exec.Command("ssh", "-F", c.conf, "-o", "ControlMaster=auto", "-N", "gpu")
	ssh.Stderr = &said
	require.NoError(t, ssh.Start())
	c.master = ssh.Process
	ended := make(chan struct{})
	go func() { _ = ssh.Wait(); close(ended) }()
	t.Cleanup(func() { _ = ssh.Process.Kill(); <-ended })
	require.Eventually(t, func() bool { return c.alive() }, 30*time.Second, 10*time.Millisecond, "no master: %s", &said)
	found, err := filepath.Glob(strings.TrimSuffix(c.socketPattern(t), "%C-%r") + "*")
	require.NoError(t, err)
	require.Len(t, found, 1)
	c.path = found[0]
	c.write(t, "authorized", "")
}

func (c *controlled) socketPattern(t *testing.T) string {
	for line := range strings.Lines(readFile(t, c.conf)) {
		if path, ok := strings.CutPrefix(line, "ControlPath "); ok {
			return strings.TrimSpace(path)
		}
	}
	t.Fatal("no ControlPath")
	return ""
}

// alive asks ssh.
func (c *controlled) alive() bool {
	return exec.Command("ssh", "-F", c.conf, "-O", "check", "gpu").Run() == nil
}

func TestOverControlMaster(t *testing.T) {
	s := startControlled(t)
	c := newClient(t, sshclient.Options{ConfigFile: s.conf})
	s.write(t, "authorized", "")
	_, err := c.Run(t.Context(), gpu, sh("true"))
	requireClass(t, remote.Auth, err)
	require.Contains(t, remote.NextStepOf(err), "ssh -fN -o ControlMaster=auto gpu")
	require.False(t, remote.Outdated(err))
	s.open(t)
	require.True(t, remote.Outdated(err), "the master is there now: it is worth another try at once")
	before := logins(t, s.sshd)

	testCommandsOverSSH(t, c, gpu, s.conf)
	t.Run("a command that a signal ended, and the status of ssh itself", func(t *testing.T) {
		for _, script := range []string{"kill -9 $$", "exit 255"} {
			_, err := c.Run(t.Context(), gpu, sh(script))
			requireClass(t, remote.OpenSSH, err)
			require.ErrorContains(t, err, "exit status 255")
		}
	})
	t.Run("many at a time", func(t *testing.T) {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				out, err := c.Run(t.Context(), gpu, sh(fmt.Sprintf("echo %d", i)))
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf("%d\n", i), string(out.Stdout))
			})
		}
		all.Wait()
	})
	t.Run("closing a stream ends its stdin", func(t *testing.T) {
		session, err := c.Start(t.Context(), gpu, sh("echo started; cat; echo the end > "+s.file("ended")))
		require.NoError(t, err)
		_, err = io.ReadFull(session.Stdout, make([]byte, len("started")))
		require.NoError(t, err)
		session.Close()
		require.Eventually(t, func() bool { return exec.Command("test", "-s", s.file("ended")).Run() == nil }, 10*time.Second, 10*time.Millisecond)
	})
	requirePeer(t, s.sshd, c)
	c.Close()
	require.True(t, s.alive(), "the master goes on")
	require.Equal(t, before, logins(t, s.sshd), "there was no login")
}

// TestControlMasterWithoutKeys: ssh_config allows no login with a key, as where
// people log in with a second factor.
func TestControlMasterWithoutKeys(t *testing.T) {
	s := startControlled(t)
	var clients []*sshclient.Client
	for _, line := range []string{"PreferredAuthentications keyboard-interactive", "PubkeyAuthentication no"} {
		c := newClient(t, sshclient.Options{ConfigFile: write(t, line+"\n"+readFile(t, s.conf))})
		_, err := c.Run(t.Context(), gpu, sh("true"))
		requireClass(t, remote.Configuration, err)
		require.ErrorContains(t, err, strings.Fields(line)[0])
		clients = append(clients, c)
	}
	s.open(t)
	before := logins(t, s.sshd)
	for _, c := range clients {
		_, err := c.Run(t.Context(), gpu, sh("true"))
		require.NoError(t, err)
	}
	require.Equal(t, before, logins(t, s.sshd))
	for _, c := range clients {
		requirePeer(t, s.sshd, c)
	}
}

// requirePeer: without the host's key, a host could claim to be another one behind a
// master, and take its place in the fleet.
func requirePeer(t *testing.T, s *sshd, c *sshclient.Client) {
	t.Helper()
	peer, known := c.Peer(gpu)
	require.True(t, known)
	require.Equal(t, fingerprint(t, s), peer.HostKey)
}

// TestControlMasterIsTheLastResort: it belongs to somebody's terminal, which would
// hang at its end as long as we use it.
func TestControlMasterIsTheLastResort(t *testing.T) {
	s := startControlled(t)
	s.open(t)
	s.write(t, "authorized", s.read(t, "authorized2"))
	before := logins(t, s.sshd)
	c := newClient(t, sshclient.Options{ConfigFile: s.conf})
	_, err := c.Run(t.Context(), gpu, sh("true"))
	require.NoError(t, err)
	require.Equal(t, before+1, logins(t, s.sshd), "a login of its own")
}

func TestControlMastersThatAreNotUsed(t *testing.T) {
	s := startControlled(t)
	s.open(t)
	for name, tt := range map[string]struct {
		lines   string
		prepare func()
		after   func()
		says    string
	}{
		"ControlMaster yes":   {lines: "ControlMaster yes"},
		"ControlMaster ask":   {lines: "ControlMaster ask"},
		"ControlPath none":    {lines: "ControlPath none"},
		"another path":        {lines: "ControlPath /nonexistent/%h", says: "no such file"},
		"a file":              {lines: "ControlPath " + s.conf, says: "not a socket"},
		"others may write it": {prepare: func() { _ = os.Chmod(s.path, 0o666) }, after: func() { _ = os.Chmod(s.path, 0o600) }, says: "can be used by others"},
		"another user's":      {prepare: func() { _ = os.Chown(s.path, 12345, 12345) }, after: func() { _ = os.Chown(s.path, 0, 0) }, says: "belongs to another user"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.prepare != nil {
				tt.prepare()
				defer tt.after()
			}
			c := newClient(t, sshclient.Options{ConfigFile: write(t, tt.lines+"\n"+readFile(t, s.conf))})
			_, err := c.Run(t.Context(), gpu, sh("true"))
			requireClass(t, remote.Auth, err)
			require.ErrorContains(t, err, tt.says)
		})
	}
	t.Run("without ssh", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: s.conf, OpenSSH: "none"})
		_, err := c.Run(t.Context(), gpu, sh("true"))
		requireClass(t, remote.Auth, err)
	})
	t.Run("a changed host key", func(t *testing.T) {
		other, _ := newKey(t)
		s.write(t, "known_hosts", fmt.Sprintf("[%s]:%d %s", s.address, s.port, ssh.MarshalAuthorizedKey(other.PublicKey())))
		c := newClient(t, sshclient.Options{ConfigFile: s.conf})
		_, err := c.Run(t.Context(), gpu, sh("true"))
		requireClass(t, remote.HostKeyChanged, err)
	})
}

func TestControlMasterThatEndsOrFreezes(t *testing.T) {
	for name, tt := range map[string]struct {
		signal unix.Signal
		class  remote.Class
	}{
		"ended":  {unix.SIGTERM, remote.OpenSSH},
		"killed": {unix.SIGKILL, remote.OpenSSH},
		"frozen": {unix.SIGSTOP, remote.OutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			s := startControlled(t)
			s.open(t)
			c := newClient(t, sshclient.Options{ConfigFile: write(t, "ServerAliveCountMax 2\n"+readFile(t, s.conf)), KeepAlive: 150 * time.Millisecond})
			session, err := c.Start(t.Context(), gpu, sh("echo started; cat"))
			require.NoError(t, err)
			defer session.Close()
			_, err = io.ReadFull(session.Stdout, make([]byte, len("started")))
			require.NoError(t, err)
			require.NoError(t, s.master.Signal(tt.signal))
			requireClass(t, tt.class, session.Wait())
			_, err = c.Run(t.Context(), gpu, sh("true"))
			requireClass(t, remote.Auth, err)
			if tt.signal == unix.SIGSTOP {
				require.NoError(t, s.master.Signal(unix.SIGCONT))
			} else {
				s.open(t)
			}
			_, err = c.Run(t.Context(), gpu, sh("true"))
			require.NoError(t, err)
		})
	}
}

// TestJumpHostOverControlMaster: hosts behind a bastion that wants a second factor.
func TestJumpHostOverControlMaster(t *testing.T) {
	bastion, host := startControlled(t), startSSHD(t)
	host.write(t, "authorized", bastion.read(t, "id.pub"))
	bastion.write(t, "known_hosts", bastion.read(t, "known_hosts")+host.read(t, "known_hosts"))
	bastion.open(t)
	behind := fmt.Sprintf("Host behind* dead\n HostName %s\n ProxyJump gpu\n IdentityFile %s\nHost behind*\n Port %d\nHost dead\n Port 1\nHost *\n", host.address, bastion.file("id"), host.port)
	c := newClient(t, sshclient.Options{ConfigFile: write(t, behind+readFile(t, bastion.conf))})
	for _, name := range []string{"behind", "behind2"} {
		out, err := c.Run(t.Context(), remote.Host{Name: name}, sh("echo $SSH_CONNECTION"))
		require.NoError(t, err)
		require.Contains(t, string(out.Stdout), fmt.Sprint(host.port))
		_, known := c.Peer(remote.Host{Name: name})
		require.True(t, known, "a login of our own, with its host key")
	}
	_, err := c.Run(t.Context(), remote.Host{Name: "dead"}, sh("true"))
	requireClass(t, remote.Unreachable, err)
}

// fixed is a host's genv that has one snapshot.
type fixed struct{}

func (fixed) Handle(context.Context, agent.Request) ([]byte, error) {
	return []byte(`{"revision": 1, "snapshot": {"processes": [], "envs": [], "devices": [], "boot_id": "over-a-master"}}`), nil
}

// TestServeStreamOverControlMaster is a controller that asks a host over `genv usage
// serve`.
func TestServeStreamOverControlMaster(t *testing.T) {
	s := startControlled(t)
	s.open(t)
	host := serving(t, s.sshd)
	c := newClient(t, sshclient.Options{ConfigFile: s.conf})
	pool := &agent.Pool{Start: agent.StartWith(c.Start), Network: c, Timeout: 30 * time.Second, Log: zerolog.Nop()}
	defer pool.Close()
	for range 3 {
		got, err := pool.Snapshot(t.Context(), host)
		require.NoError(t, err)
		require.Equal(t, "over-a-master", got.BootID)
	}
	require.Equal(t, agent.ViaStream, pool.About(host).Via)
	require.NoError(t, s.master.Kill())
	require.Eventually(t, func() bool {
		_, err := pool.Snapshot(t.Context(), host)
		return remote.ClassOf(err) == remote.Auth
	}, 20*time.Second, 20*time.Millisecond, "the master is gone")
	s.open(t)
	require.Eventually(t, func() bool {
		_, err := pool.Snapshot(t.Context(), host)
		return err == nil
	}, 20*time.Second, 20*time.Millisecond, "another one is found at once, not after minutes")
}

// serving gives the host a genv, which is this test program.
func serving(t *testing.T, s *sshd) remote.Host {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	script := fmt.Sprintf("#!/bin/sh\nGENV_TEST_SERVE=1 exec %s\n", program)
	require.NoError(t, proctest.WriteProgram(s.file("genv"), []byte(script)))
	return remote.Host{Name: "gpu", GenvPath: s.file("genv"), NoSudo: true}
}

// serve is the genv of a host.
func serve() {
	server := agent.Server{ReadToken: true, Greeting: agent.NewGreeting("test"), Handler: fixed{}, Idle: time.Minute}
	_ = server.Serve(context.Background(), os.Stdin, os.Stdout) // its client hangs up
}
