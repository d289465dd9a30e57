package sshclient_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestStream(t *testing.T) {
	s := startSSHD(t)
	c := newClient(t, sshclient.Options{ConfigFile: s.config(t), CommandTimeout: time.Second})

	t.Run("lines there and back, beyond a command's deadline", func(t *testing.T) {
		session := proctest.Try(c.Start(t.Context(), gpu, remote.Command{Args: []string{"cat"}, Stdin: []byte("hello\n")})).OK(t)
		defer session.Close()
		lines := bufio.NewReader(session.Stdout)
		require.Equal(t, "hello\n", proctest.Try(lines.ReadString('\n')).OK(t))
		time.Sleep(1100 * time.Millisecond) // a stream outlives CommandTimeout
		for i := range 100 {
			proctest.Try(session.Stdin.Write([]byte(strconv.Itoa(i) + "\n"))).OK(t)
			require.Equal(t, strconv.Itoa(i)+"\n", proctest.Try(lines.ReadString('\n')).OK(t))
		}
		require.NoError(t, session.Stdin.Close())
		require.ErrorIs(t, proctest.Try(lines.ReadString('\n')).Err, io.EOF)
		require.NoError(t, session.Wait())
	})
	t.Run("its exit status and stderr", func(t *testing.T) {
		session := proctest.Try(c.Start(t.Context(), gpu, sh("echo sudo: a password is required >&2; exit 1"))).OK(t)
		defer session.Close()
		proctest.Try(io.ReadAll(session.Stdout)).OK(t)
		requireClass(t, remote.Sudo, session.Wait())
		require.Equal(t, "sudo: a password is required\n", string(session.Stderr()))
	})
	t.Run("closing it ends its stdin, and it twice is once", func(t *testing.T) {
		session := proctest.Try(c.Start(t.Context(), gpu, sh("cat; echo the end > "+s.file("ended")))).OK(t)
		session.Close()
		session.Close()
		proctest.Try(io.ReadAll(session.Stdout)).OK(t)
		require.Eventually(t, func() bool { return exec.Command("test", "-s", s.file("ended")).Run() == nil }, 30*time.Second, 10*time.Millisecond)
		proctest.Try(c.Run(t.Context(), gpu, sh("true"))).OK(t, "its place on the connection is free again")
	})
	t.Run("what may not be begun any more after the login", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: s.config(t)})
		asked := 0
		ctx := remote.While(t.Context(), func() error {
			asked++
			_, loggedIn := c.Peer(gpu)
			require.True(t, loggedIn, "it is asked after the login")
			return remote.Errorf(remote.Cancelled, "replaced")
		})
		_, err := c.Run(ctx, gpu, sh("touch "+s.file("begun")))
		requireClass(t, remote.Cancelled, err, "replaced")
		require.Equal(t, 1, asked)
		runs(t, c, gpu, sh("test ! -e "+s.file("begun")))
	})
	t.Run("a flood on stderr ends it", func(t *testing.T) {
		session := proctest.Try(c.Start(t.Context(), gpu, sh("yes >&2"))).OK(t)
		defer session.Close()
		requireClass(t, remote.InvalidOutput, session.Wait())
		require.LessOrEqual(t, len(session.Stderr()), 256<<10)
	})
	t.Run("a client that is closed", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: s.config(t)})
		session := proctest.Try(c.Start(t.Context(), gpu, sh("cat"))).OK(t)
		c.Close()
		requireClass(t, remote.OutcomeUnknown, session.Wait())
		session.Close()
	})
}

// startCat starts a cat that has begun, for the time of the test.
func startCat(t *testing.T, c *sshclient.Client, h remote.Host) *sshclient.Session {
	t.Helper()
	session := proctest.Try(c.Start(t.Context(), h, sh("echo started; cat"))).OK(t)
	t.Cleanup(session.Close)
	proctest.Try(io.ReadFull(session.Stdout, make([]byte, len("started\n")))).OK(t)
	return session
}

// children are the processes that serve a login of the server.
func (s *sshd) children(t testing.TB) []int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", s.process.Pid, s.process.Pid))
	proctest.Need(t, err == nil, "a kernel that lists a process's children")
	var pids []int
	for word := range strings.FieldsSeq(string(text)) {
		pid := proctest.Try(strconv.Atoi(word)).OK(t)
		pids = append(pids, pid)
	}
	require.NotEmpty(t, pids)
	return pids
}

func TestFrozenOrKilledSSHD(t *testing.T) {
	for name, tt := range map[string]struct {
		signal unix.Signal
		says   string
	}{
		"frozen": {unix.SIGSTOP, "no sign of life"},
		"killed": {unix.SIGKILL, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSSHD(t)
			c := newClient(t, sshclient.Options{ConfigFile: s.config(t, "ServerAliveCountMax 2"), KeepAlive: time.Second})
			session := startCat(t, c, gpu)
			for _, pid := range s.children(t) {
				require.NoError(t, unix.Kill(pid, tt.signal))
				defer func() { _ = unix.Kill(pid, unix.SIGKILL) }()
			}
			requireClass(t, remote.OutcomeUnknown, session.Wait(), tt.says)
			runs(t, c, gpu, sh("true")) // on a fresh connection
		})
	}
}

// TestDeadHostDelaysNoOther has a host whose packets are lost.
func TestDeadHostDelaysNoOther(t *testing.T) {
	f := startFake(t, nil)
	silent := startFake(t, func(f *fake) {
		f.accept = func(conn net.Conn, _ int32) bool { _, _ = io.Copy(io.Discard, conn); return false }
	})
	config := f.config("Host dead", " HostName "+silent.address().IP.String(), " Port "+strconv.Itoa(silent.address().Port))
	c := newClient(t, sshclient.Options{ConfigFile: config, ConnectTimeout: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var dead sync.WaitGroup
	dead.Go(func() {
		_, err := c.Run(ctx, remote.Host{Name: "dead"}, snapshot)
		requireClass(t, remote.Cancelled, err)
	})
	var others sync.WaitGroup
	for i := range 20 {
		others.Go(func() {
			runs(t, c, remote.Host{Name: "gpu-" + strconv.Itoa(i)}, snapshot)
		})
	}
	others.Wait() // before the dead host's minute is over
	cancel()
	dead.Wait()
}

func TestAcceptNewAndInsecure(t *testing.T) {
	s := startSSHD(t)
	known := s.read(t, "known_hosts")
	s.write(t, "known_hosts", "")
	var log bytes.Buffer
	c := newClient(t, sshclient.Options{ConfigFile: s.config(t), InsecureHostKeys: true, Log: zerolog.New(zerolog.SyncWriter(&log))})
	runs(t, c, gpu, sh("true"))
	require.Contains(t, log.String(), "INSECURE")
	require.Empty(t, s.read(t, "known_hosts"))

	c = newClient(t, sshclient.Options{ConfigFile: s.config(t, "StrictHostKeyChecking accept-new")})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			runs(t, c, remote.Host{Name: "gpu-" + strconv.Itoa(i)}, sh("true"))
		})
	}
	all.Wait()
	require.Equal(t, strings.Fields(known)[:3], strings.Fields(s.read(t, "known_hosts")), "one line, as OpenSSH writes it")
}

func TestAddressFamilies(t *testing.T) {
	listener, err := net.Listen("tcp6", "[::1]:0")
	proctest.Need(t, err == nil, "IPv6 on the loopback")
	f := startFake(t, func(f *fake) {
		_ = f.listener.Close()
		f.listener = listener
		f.known(f.key.PublicKey())
	})
	port := f.address().Port
	for name, tt := range map[string]struct {
		host  remote.Host
		lines []string
		fails remote.Class
	}{
		"an IPv6 address":              {host: remote.Host{Name: "::1", Port: port}},
		"as HostName":                  {host: gpu},
		"an address of another family": {host: gpu, lines: []string{"AddressFamily inet"}, fails: remote.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, sshclient.Options{ConfigFile: f.config(tt.lines...), ConnectTimeout: 3 * time.Second})
			_, err := c.Run(t.Context(), tt.host, snapshot)
			requireClass(t, tt.fails, err)
		})
	}
}

func TestEnoughDescriptors(t *testing.T) {
	require.NoError(t, sshclient.EnoughDescriptors(1))
	err := sshclient.EnoughDescriptors(1 << 40)
	requireClass(t, remote.Configuration, err, "ulimit -n")
}

var snapshot = gpu.Genv("usage", "snapshot")

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
		"sudo wants a password":    {says("sudo: a password is required\n", 1), remote.Sudo, "wants a password"},
		"sudo wants a terminal":    {says("sudo: a terminal is required to read the password; either use the -S option\nsudo: a password is required\n", 1), remote.Sudo, "wants a password"},
		"not in sudoers":           {says("alice is not in the sudoers file.  This incident will be reported.\n", 1), remote.SudoRefused, "does not allow"},
		"sudo-rs wants a password": {says("sudo-rs: interactive authentication is required\n", 1), remote.Sudo, "wants a password"},
		"sudo-rs refuses":          {says("sudo-rs: I'm sorry alice. I'm afraid I can't do that\n", 1), remote.SudoRefused, "does not allow"},
		"no genv under sudo-rs":    {says("sudo-rs: 'genv': command not found\n", 1), remote.GenvMissing, "not there"},
		"it says why on stdout alone": {func(ch ssh.Channel, _ string, _ net.Conn) {
			_, _ = ch.Write([]byte("Last login: today\nThis account is currently not available.\n"))
			exit(ch, 1)
		}, remote.CommandFailed, "exit status 1: This account is currently not available."},
		"sudo for other commands": {says("Sorry, user alice is not allowed to execute '/usr/bin/genv' as root on gpu.\n", 1), remote.SudoRefused, "does not allow"},
		"no sudo":                 {says("bash: line 1: sudo: command not found\n", 127), remote.Sudo, "no sudo"},
		"no genv under sudo":      {says("sudo: genv: command not found\n", 1), remote.GenvMissing, "not there"},
		"no genv":                 {says("bash: line 1: genv: command not found\n", 127), remote.GenvMissing, "genv: command not found"},
		"genv fails":              {says("cannot read \x1b]0;x\x07state\n", 4), remote.CommandFailed, `exit status 4: cannot read \x1b]0;x\astate`},
		"genv crashes": {
			says("noise\npanic: runtime error: index out of range [3] with length 3 \x1b[2J\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:7 +0x1d\nexit status 2\n", 2),
			remote.CommandFailed, `genv crashed there: panic: runtime error: index out of range [3] with length 3 \x1b[2J`,
		},
		"genv runs out of memory": {
			says("fatal error: runtime: out of memory\n\nruntime stack:\nruntime.throw()\n", 2), remote.CommandFailed, "genv crashed there: fatal error: runtime: out of memory",
		},
		"a panic that is only mentioned": {says("panic: is not what this is\nno state\n", 1), remote.CommandFailed, "exit status 1: no state"},
		"wrong usage":                    {says("usage: genv [-h]\n", 2), remote.CommandFailed, "exit status 2: usage: genv [-h]"},
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
			requireClass(t, tt.class, err, tt.says)
			require.LessOrEqual(t, len(out.Stdout), 4<<20)
			require.LessOrEqual(t, len(out.Stderr), 256<<10)
			require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(64<<20), "memory is bounded")
		})
	}
	t.Run("the host refuses commands", func(t *testing.T) {
		f := startFake(t, nil)
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		fails(t, c, gpu, remote.Command{Args: []string{"refused"}}, remote.CommandFailed)
	})
}

// A host that exchanges keys again shows its key again, long after the login: it is compared, and
// neither known_hosts nor the command that knows keys is asked.
func TestKeysThatAreExchangedAgain(t *testing.T) {
	s := startSSHD(t, "RekeyLimit 16K")
	known := strings.TrimSpace(s.read(t, "known_hosts"))
	s.write(t, "known_hosts", "")
	s.write(t, "config", fmt.Sprintf("Host gpu\n HostName %s\n Port %d\n User root\n IdentityFile %s\n UserKnownHostsFile %s\n GlobalKnownHostsFile none\n KnownHostsCommand /bin/echo %s\n",
		s.address, s.port, s.file("id"), s.file("known_hosts"), known))
	c := newClient(t, sshclient.Options{ConfigFile: s.file("config")})
	for range 3 {
		require.Len(t, runs(t, c, remote.Host{Name: "gpu"}, sh("head -c 100000 /dev/zero")).Stdout, 100000)
		time.Sleep(10 * time.Millisecond)
	}
	require.Equal(t, 1, strings.Count(s.read(t, "log"), "Accepted publickey"), "one connection")
}
