package sshclient_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// sshd is a real OpenSSH server with a folder of its own and one login key.
type sshd struct {
	dir, address string
	port         int
	process      *os.Process
	prefix       []string // a command that runs the server elsewhere
	hostKey      string   // the file of its host key; empty: an ed25519 key of its own
}

var lastAddress atomic.Int32

// freshAddress is a loopback address that no other test of this run uses.
func freshAddress() string {
	n := lastAddress.Add(1)
	return fmt.Sprintf("127.77.%d.%d", n/250, n%250+1)
}

func freePort(t testing.TB, address string) int {
	t.Helper()
	l := proctest.Try(net.Listen("tcp", net.JoinHostPort(address, "0"))).OK(t)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().(*net.TCPAddr).Port
}

func run(t testing.TB, name string, args ...string) string {
	proctest.NeedSSH(t)
	t.Helper()
	return proctest.Output(t, exec.Command(name, args...))
}

// startSSHD starts a server with an ed25519 host key, which accepts dir/id, and ends it with the test.
func startSSHD(t testing.TB, config ...string) *sshd {
	t.Helper()
	s := &sshd{dir: t.TempDir(), address: freshAddress()}
	s.port = freePort(t, s.address)
	s.prepare(t, config...)
	return s
}

// prepare writes the server's files and starts it.
func (s *sshd) prepare(t testing.TB, config ...string) {
	t.Helper()
	program, err := exec.LookPath("sshd")
	if err != nil {
		program = "/usr/sbin/sshd"
	}
	_, err = os.Stat(program)
	proctest.Need(t, err == nil && os.Getuid() == 0, "OpenSSH's sshd, and root to start it")
	require.NoError(t, os.MkdirAll("/run/sshd", 0o755))
	if s.hostKey == "" {
		s.hostKey = s.file("hostkey")
		run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.hostKey)
	}
	run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.file("id"))
	s.write(t, "authorized", s.read(t, "id.pub"))
	s.write(t, "known_hosts", fmt.Sprintf("[%s]:%d %s", s.address, s.port, proctest.ReadText(t, s.hostKey+".pub")))
	s.write(t, "sshd_config", strings.Join(append(config,
		fmt.Sprintf("Port %d", s.port), "ListenAddress "+s.address, "HostKey "+s.hostKey, "PidFile none",
		"AuthorizedKeysFile "+s.file("authorized"), "UsePAM no", "StrictModes no", "PermitRootLogin yes",
		"PasswordAuthentication no", "LogLevel VERBOSE",
		"SetEnv SHLVL=2" /* so that bash reads no rc file of this machine */), "\n"))
	s.start(t, append(s.prefix, program, "-D", "-e", "-f", s.file("sshd_config")))
}

func (s *sshd) start(t testing.TB, command []string) {
	t.Helper()
	log := proctest.Try(os.OpenFile(s.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)).OK(t)
	server := exec.Command(command[0], command[1:]...)
	server.Stderr = log
	require.NoError(t, server.Start())
	s.process = server.Process
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		_ = log.Close()
		if t.Failed() {
			text := s.read(t, "log")
			t.Logf("the end of sshd's log:\n%s", text[max(0, len(text)-2000):])
		}
	})
	require.Eventually(t, func() bool {
		conn, err := net.DialTimeout("tcp", s.target(), time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond, "sshd did not start")
}

func (s *sshd) target() string          { return net.JoinHostPort(s.address, strconv.Itoa(s.port)) }
func (s *sshd) file(name string) string { return filepath.Join(s.dir, name) }

func (s *sshd) read(t testing.TB, name string) string {
	t.Helper()
	return proctest.ReadText(t, s.file(name))
}

func (s *sshd) write(t testing.TB, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(s.file(name), []byte(content), 0o600))
}

// config is an ssh_config that reaches the server as "gpu"; first come the lines given, which win.
func (s *sshd) config(t testing.TB, lines ...string) string {
	t.Helper()
	text := strings.Join(lines, "\n") + fmt.Sprintf(`
Host gpu gpu-*
  HostName %s
  Port %d
Host *
  User root
  IdentityFile %s
  IdentityAgent none
  UserKnownHostsFile %s
  GlobalKnownHostsFile /dev/null
`, s.address, s.port, s.file("id"), s.file("known_hosts"))
	name := fmt.Sprintf("config-%d", lastAddress.Add(1))
	s.write(t, name, text)
	return s.file(name)
}

var gpu = remote.Host{Name: "gpu"}

// newClient makes one that is closed with the test.
func newClient(t testing.TB, o sshclient.Options) *sshclient.Client {
	t.Helper()
	c := sshclient.New(o)
	t.Cleanup(c.Close)
	return c
}

func sh(script string) remote.Command { return remote.Command{Args: []string{"sh", "-c", script}} }

func TestRunOverSSHD(t *testing.T) {
	s := startSSHD(t)
	c := newClient(t, sshclient.Options{ConfigFile: s.config(t)})
	t.Run("output and arguments arrive as they are", func(t *testing.T) {
		out := runs(t, c, gpu, remote.Command{Args: []string{"printf", "%s|", "a b", "$HOME", "it's", "`id`", ""}})
		require.Equal(t, "a b|$HOME|it's|`id`||", string(out.Stdout))
	})
	t.Run("stdin", func(t *testing.T) {
		input := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
		out := runs(t, c, gpu, remote.Command{Args: []string{"cat"}, Stdin: input})
		require.True(t, bytes.Equal(input, out.Stdout), "4 MiB there and back")
	})
	t.Run("a command may leave its stdin unread", func(t *testing.T) {
		runs(t, c, gpu, remote.Command{Args: []string{"true"}, Stdin: make([]byte, 8<<20)})
	})
	t.Run("exit status and the last words", func(t *testing.T) {
		out, err := c.Run(t.Context(), gpu, sh("echo some; echo first >&2; printf 'l\\033[31mast\\n' >&2; exit 3"))
		requireClass(t, remote.CommandFailed, err)
		require.EqualError(t, err, `gpu: exit status 3: l\x1b[31mast`)
		require.Equal(t, "some\n", string(out.Stdout))
		var e *remote.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "first\nl\x1b[31mast\n", e.Stderr, "whole, as it came")
	})
	t.Run("one connection serves them all", func(t *testing.T) {
		require.Equal(t, 1, strings.Count(s.read(t, "log"), "Accepted publickey"))
	})
}
