package sshclient_test

import (
	"bytes"
	"fmt"
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

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// byOpenSSH is a host that is reached by running ssh(1).
var byOpenSSH = remote.Host{Name: "gpu", OpenSSH: true}

func TestOpenSSH(t *testing.T) {
	s := startSSHD(t, "MaxStartups 100")
	c := newClient(t, sshclient.Options{ConfigFile: s.config(t)})

	testCommandsOverSSH(t, c, byOpenSSH, s.config(t))
	t.Run("many at a time", func(t *testing.T) {
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				h := remote.Host{Name: fmt.Sprintf("gpu-%d", i), OpenSSH: true}
				out := runs(t, c, h, sh(fmt.Sprintf("echo %d", i)))
				require.Equal(t, fmt.Sprintf("%d\n", i), string(out.Stdout))
			})
		}
		all.Wait()
	})
	peer, known := c.Peer(byOpenSSH)
	require.True(t, known)
	require.Equal(t, fingerprint(t, s), peer.HostKey)
	require.ErrorIs(t, c.Probe(t.Context(), byOpenSSH), remote.ErrNoProbe)
}

// testCommandsOverSSH: ssh(1) passes on what commands write, read and exit with.
func testCommandsOverSSH(t *testing.T, c *sshclient.Client, host remote.Host, config string) {
	t.Helper()
	t.Run("output, stdin and stderr", func(t *testing.T) {
		input := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		out := runs(t, c, host, remote.Command{Args: []string{"sh", "-c", "cat; echo it\\'s a problem >&2"}, Stdin: input})
		require.Equal(t, input, out.Stdout)
		require.Equal(t, "it's a problem\n", string(out.Stderr))
	})
	t.Run("statuses", func(t *testing.T) {
		for status, class := range map[int]remote.Class{1: remote.CommandFailed, 127: remote.GenvMissing, 254: remote.CommandFailed} {
			fails(t, c, host, sh(fmt.Sprintf("exit %d", status)), class, fmt.Sprintf("exit status %d", status))
		}
		fails(t, c, host, sh("echo sudo: a password is required >&2; exit 1"), remote.Sudo)
	})
	t.Run("a flood", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: config, MaxStdout: 1 << 20})
		fails(t, c, host, sh("yes"), remote.InvalidOutput)
	})
	t.Run("a deadline", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: config, CommandTimeout: 2 * time.Second})
		out, err := c.Run(t.Context(), host, sh("echo half; sleep 60"))
		requireClass(t, remote.Timeout, err)
		require.Equal(t, "half\n", string(out.Stdout))
		runs(t, c, host, sh("true"))
	})
}

func fingerprint(t *testing.T, s *sshd) string {
	t.Helper()
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s.read(t, "hostkey.pub")))
	require.NoError(t, err)
	return ssh.FingerprintSHA256(key)
}

// TestOpenSSHRefuses: ssh_config can't lower what is required of a host key, and the error says what ssh said.
func TestOpenSSHRefuses(t *testing.T) {
	s := startSSHD(t)
	lax := s.config(t, "StrictHostKeyChecking no")
	known := s.read(t, "known_hosts")
	other, _ := newKey(t)
	for name, tt := range map[string]struct {
		knownHosts, authorized string
		says                   string
	}{
		"a key that is refused": {known, "", "Permission denied"},
		"an unknown host key":   {"", s.read(t, "authorized"), "Host key verification failed"},
		"a changed host key": {
			fmt.Sprintf("[%s]:%d %s", s.address, s.port, ssh.MarshalAuthorizedKey(other.PublicKey())), s.read(t, "authorized"), "Host key verification failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.write(t, "known_hosts", tt.knownHosts)
			s.write(t, "authorized", tt.authorized)
			c := newClient(t, sshclient.Options{ConfigFile: lax})
			require.NotContains(t, failure(t, c, byOpenSSH, sh("true"), remote.OpenSSH, tt.says).Error(), "\n")
			require.Equal(t, tt.knownHosts, s.read(t, "known_hosts"), "no key is added")
		})
	}
	t.Run("host keys that are not checked", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: lax, InsecureHostKeys: true})
		fails(t, c, byOpenSSH, sh("true"), remote.Configuration, "--insecure-ignore-host-keys")
	})
	t.Run("without ssh", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: lax, OpenSSH: "none"})
		fails(t, c, byOpenSSH, sh("true"), remote.Configuration)
	})
}

// TestOpenSSHIsNamed where our own login can't do what the host wants.
func TestOpenSSHIsNamed(t *testing.T) {
	works := func(t *testing.T, config string) {
		t.Helper()
		c := newClient(t, sshclient.Options{ConfigFile: config})
		runs(t, c, byOpenSSH, sh("true"))
	}
	named := func(t *testing.T, class remote.Class, config string) {
		t.Helper()
		c := newClient(t, sshclient.Options{ConfigFile: config})
		err := failure(t, c, gpu, sh("true"), class)
		require.Contains(t, remote.NextStepOf(err), "--ssh openssh")
	}
	const lacking = "KexAlgorithms sntrup761x25519-sha512@openssh.com"
	t.Run("an algorithm that the library lacks", func(t *testing.T) {
		s := startSSHD(t, lacking)
		named(t, remote.Configuration, s.config(t))
		works(t, s.config(t))
	})
	t.Run("an algorithm in ssh_config", func(t *testing.T) {
		s := startSSHD(t)
		named(t, remote.Configuration, s.config(t, lacking))
		works(t, s.config(t, lacking))
	})
	t.Run("a second factor", func(t *testing.T) {
		s := startSSHD(t, "AuthenticationMethods publickey,password", "PasswordAuthentication yes")
		named(t, remote.Auth, s.config(t))
	})
	t.Run("a key that is restricted to destinations", func(t *testing.T) {
		s := startSSHD(t)
		socket := s.agent(t)
		add := exec.Command("ssh-add", "-H", s.file("known_hosts"), "-h", fmt.Sprintf("[%s]:%d", s.address, s.port), s.file("id"))
		add.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket)
		proctest.Output(t, add)
		config := s.config(t, "IdentityAgent "+socket)
		require.NoError(t, os.Rename(s.file("id"), s.file("hidden"))) // only its public half is there
		named(t, remote.Auth, config)
		works(t, config)
	})
}

// TestOpenSSHBehindAJumpHost: jump hosts are ssh's own business.
func TestOpenSSHBehindAJumpHost(t *testing.T) {
	bastion, host := startSSHD(t, "MaxStartups 100"), startSSHD(t, "MaxStartups 100")
	host.write(t, "authorized", bastion.read(t, "id.pub"))
	bastion.write(t, "known_hosts", bastion.read(t, "known_hosts")+host.read(t, "known_hosts"))
	behind := fmt.Sprintf("Host behind*\n HostName %s\n Port %d\n ProxyJump gpu\nHost *\n", host.address, host.port)
	c := newClient(t, sshclient.Options{ConfigFile: write(t, behind+proctest.ReadText(t, bastion.config(t)))})
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			out := runs(t, c, remote.Host{Name: fmt.Sprintf("behind%d", i), OpenSSH: true}, sh("echo $SSH_CONNECTION"))
			require.Contains(t, string(out.Stdout), fmt.Sprint(host.port))
		})
	}
	all.Wait()
}

// TestOpenSSHWithARenewedKey: ssh(1) reads the files of the keys, so a login that failed is tried again when one changes.
func TestOpenSSHWithARenewedKey(t *testing.T) {
	s := startSSHD(t)
	accepted := s.read(t, "authorized")
	s.write(t, "authorized", "")
	c := newClient(t, sshclient.Options{ConfigFile: s.config(t)})
	err := failure(t, c, byOpenSSH, sh("true"), remote.OpenSSH)
	require.False(t, remote.Outdated(err))
	s.write(t, "authorized", accepted)
	require.NoError(t, os.Chtimes(s.file("id"), time.Now(), time.Now()))
	require.True(t, remote.Outdated(err))
	runs(t, c, byOpenSSH, sh("true"))
}

// TestOpenSSHOverAMaster: ssh itself uses a ControlMaster, without a login.
func TestOpenSSHOverAMaster(t *testing.T) {
	s := startControlled(t)
	s.open(t)
	before := logins(t, s.sshd)
	c := newClient(t, sshclient.Options{ConfigFile: s.conf})
	runs(t, c, byOpenSSH, sh("true"))
	require.Equal(t, before, logins(t, s.sshd))
	require.NoError(t, s.master.Kill())
	var err error
	require.Eventually(t, func() bool {
		_, err = c.Run(t.Context(), byOpenSSH, sh("true"))
		return err != nil
	}, 20*time.Second, 20*time.Millisecond)
	requireClass(t, remote.OpenSSH, err)
	require.Contains(t, remote.NextStepOf(err), "ssh -fN -o ControlMaster=auto gpu")
	require.False(t, remote.Outdated(err))
	s.open(t)
	require.True(t, remote.Outdated(err), "it is worth another try at once")
}

// processes are the PIDs of ssh and bash with a file in their command line.
func processes(t *testing.T, config string) (pids []int) {
	t.Helper()
	found := proctest.Try(filepath.Glob("/proc/[0-9]*/cmdline")).OK(t)
	for _, name := range found {
		exe, _ := os.Readlink(filepath.Join(filepath.Dir(name), "exe"))
		if base := filepath.Base(exe); base != "ssh" && base != "bash" {
			continue // it may be another test's, whose memory does not answer
		}
		if line, err := os.ReadFile(name); err == nil && bytes.Contains(line, []byte(config)) {
			pid := 0
			proctest.Try(fmt.Sscanf(name, "/proc/%d/cmdline", &pid)).OK(t)
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestOpenSSHEnds(t *testing.T) {
	s := startSSHD(t)
	gone := func(t *testing.T, config string) {
		t.Helper()
		require.Eventually(t, func() bool { return len(processes(t, config)) == 0 }, time.Minute, 50*time.Millisecond)
	}
	t.Run("with its session, and its ProxyCommand too", func(t *testing.T) {
		s.write(t, "proxy", "trap '' HUP TERM; exec 3<>/dev/tcp/$1/$2; cat <&3 & cat >&3; sleep 1000")
		config := s.config(t, "ProxyCommand bash "+s.file("proxy")+" %h %p")
		session := startCat(t, newClient(t, sshclient.Options{ConfigFile: config}), byOpenSSH)
		require.NotEmpty(t, processes(t, s.file("proxy")))
		session.Close()
		gone(t, config)
		gone(t, s.file("proxy"))
	})
	t.Run("with the client", func(t *testing.T) {
		config := s.config(t)
		c := newClient(t, sshclient.Options{ConfigFile: config})
		startCat(t, c, byOpenSSH)
		c.Close()
		gone(t, config)
	})
	t.Run("when the host is given up", func(t *testing.T) {
		config := s.config(t)
		c := newClient(t, sshclient.Options{ConfigFile: config})
		session := startCat(t, c, byOpenSSH)
		c.Disconnect(byOpenSSH)
		requireClass(t, remote.OutcomeUnknown, session.Wait())
		gone(t, config)
	})
	t.Run("killed by others", func(t *testing.T) {
		config := s.config(t)
		session := startCat(t, newClient(t, sshclient.Options{ConfigFile: config}), byOpenSSH)
		for _, pid := range processes(t, config) {
			require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		}
		requireClass(t, remote.OutcomeUnknown, session.Wait())
	})
}

// TestOpenSSHOrder: ssh that is killed, or fails, while a genv of version 1.4.3 carries out an
// order leaves its outcome unknown.
func TestOpenSSHOrder(t *testing.T) {
	s := startSSHD(t)
	require.NoError(t, proctest.WriteProgram(s.file("genv"), []byte("#!/bin/sh\ntouch "+s.file("begun")+"\nexec sleep 60\n")))
	host := remote.Host{Name: "gpu", GenvPath: s.file("genv"), NoSudo: true, OpenSSH: true}
	o := order.Order{}
	for name, signal := range map[string]unix.Signal{"killed": unix.SIGKILL, "the status 255": unix.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(s.file("begun"))
			config := s.config(t)
			c := newClient(t, sshclient.Options{ConfigFile: config})
			failed := make(chan error, 1)
			go func() {
				_, err := agent.Commands{Network: c}.Execute(t.Context(), host, o)
				failed <- err
			}()
			require.Eventually(t, func() bool { _, err := os.Stat(s.file("begun")); return err == nil }, 20*time.Second, 10*time.Millisecond)
			for _, pid := range processes(t, config) {
				require.NoError(t, unix.Kill(pid, signal))
			}
			requireClass(t, remote.OutcomeUnknown, <-failed)
		})
	}
}

// TestServeStreamByOpenSSH is a controller that asks a host over `genv usage serve`.
func TestServeStreamByOpenSSH(t *testing.T) {
	s := startSSHD(t)
	host := serving(t, s)
	host.OpenSSH = true
	config := s.config(t)
	c := newClient(t, sshclient.Options{ConfigFile: config})
	pool := &agent.Pool{Start: agent.StartWith(c.Start), Network: c, Timeout: 30 * time.Second, Log: zerolog.Nop()}
	defer pool.Close()
	asked := func() error { _, err := pool.Snapshot(t.Context(), host); return err }
	for range 3 {
		require.NoError(t, asked())
	}
	require.Equal(t, agent.ViaStream, pool.About(host).Via)
	require.Equal(t, 1, strings.Count(s.read(t, "log"), "Accepted publickey"), "one long process")
	for _, pid := range processes(t, config) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	require.Eventually(t, func() bool { return asked() == nil }, 20*time.Second, 20*time.Millisecond, "it is logged in again")
}

// TestOpenSSHOfABusyServer: it drops connections before the handshake, and another try works.
func TestOpenSSHOfABusyServer(t *testing.T) {
	s := startSSHD(t)
	host := serving(t, s)
	host.OpenSSH = true
	busy := startRelay(t, s)
	busy.drops.Store(2)
	host.Port = busy.port
	s.write(t, "known_hosts", fmt.Sprintf("[%s]:%d %s", s.address, host.Port, s.read(t, "hostkey.pub")))
	c := newClient(t, sshclient.Options{ConfigFile: s.config(t)})
	pool := &agent.Pool{Start: agent.StartWith(c.Start), Network: c, Timeout: 30 * time.Second, Log: zerolog.Nop()}
	defer pool.Close()
	proctest.Try(pool.Snapshot(t.Context(), host)).OK(t)
}
