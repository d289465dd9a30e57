package sshclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// TestCommandLines pins what ssh is told. Real ones are in the tests of sshclient.
func TestSSHCommandLines(t *testing.T) {
	const fixed = "ssh -T -a -x -oBatchMode=yes -oStrictHostKeyChecking=yes -oControlMaster=no -oClearAllForwardings=yes -oPermitLocalCommand=no -oLogLevel=ERROR "
	l := &sshLogin{program: "ssh", arguments: []string{"-F", "file", "--", "gpu"}}
	require.Equal(t, fixed+"-F file -- gpu genv version", strings.Join(l.running("genv version"), " "))
	l.connectTimeout, l.keepAlive = 1500*time.Millisecond, 15*time.Second
	require.Equal(t, fixed+"-oConnectTimeout=2 -oServerAliveInterval=15 -F file -- gpu true", strings.Join(l.running("true"), " "))
}

func TestSSHEnvironment(t *testing.T) {
	t.Setenv("LANG", "de_DE.UTF-8")
	t.Setenv("LC_MESSAGES", "de_DE.UTF-8")
	t.Setenv("SSH_AUTH_SOCK", "/agent")
	require.Contains(t, sshEnvironment(), "SSH_AUTH_SOCK=/agent")
	require.Contains(t, sshEnvironment(), "LC_ALL=C")
	require.NotContains(t, strings.Join(sshEnvironment(), " "), "de_DE")
}

// pretend is a session of a program in place of ssh.
func pretend(t *testing.T, script string) *sshProcess {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ssh")
	require.NoError(t, proctest.WriteProgram(program, []byte("#!/bin/sh\n"+script)))
	s := proctest.Try((&sshLogin{program: program}).newProcess()).OK(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Start("true"))
	return s
}

// TestEndedBeforeStart: a connection that is closed leaves no ssh behind.
func TestEndedBeforeStart(t *testing.T) {
	s := proctest.Try((&sshLogin{program: "/bin/true"}).newProcess()).OK(t)
	s.end()
	require.ErrorIs(t, s.Start("true"), errEnded)
	require.NoError(t, s.Close())
}

func TestSSHEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		status int   // of the command
		err    error // nil for another one
	}{
		"success":  {script: "exit 0"},
		"failure":  {script: "exit 3", status: 3},
		"its own":  {script: "exit 255", err: errSSH},
		"a signal": {script: "kill -9 $$", status: -1},
		"a child that keeps the pipes open, and does not end": {script: "trap '' HUP TERM; sleep 1000 & exit 4", status: 4},
	} {
		t.Run(name, func(t *testing.T) {
			s := pretend(t, tt.script)
			require.Empty(t, proctest.Try(io.ReadAll(s.pipes[2].ours)).OK(t))
			err := s.Wait()
			status, _, exited := exitOf(err)
			switch {
			case tt.err != nil:
				require.ErrorIs(t, err, tt.err)
			case tt.status > 0:
				require.True(t, exited)
				require.Equal(t, tt.status, status)
			case tt.status < 0:
				require.Error(t, err)
				require.False(t, exited)
				require.NotErrorIs(t, err, errSSH)
			default:
				require.NoError(t, err)
			}
		})
	}
}

// TestSSHCloses: ssh that does not react is killed, with its children.
func TestSSHCloses(t *testing.T) {
	s := pretend(t, "trap '' HUP TERM; sleep 1000 & echo started; wait; wait; sleep 1000")
	proctest.Try(io.ReadFull(s.pipes[1].ours, make([]byte, len("started")))).OK(t)
	begun := time.Now()
	require.NoError(t, s.Close())
	require.Less(t, time.Since(begun), 10*time.Second)
	require.Error(t, s.Wait())
	require.Eventually(t, func() bool {
		return unix.Kill(-s.ssh.command.Process.Pid, 0) == unix.ESRCH
	}, 10*time.Second, 10*time.Millisecond)
}

// TestChildrenOfAProxyCommandAreEnded: also those that keep its stderr open after it has ended.
func TestChildrenOfAProxyCommandAreEnded(t *testing.T) {
	command := exec.Command("/bin/sh", "-c", "sleep 1000 & exit 0")
	command.Stderr = new(strings.Builder)
	group := proctest.Try(startGroup(command)).OK(t)
	pid := command.Process.Pid
	t.Cleanup(func() { _ = unix.Kill(-pid, unix.SIGKILL) }) // it has ended
	go group.reap(false)
	require.Eventually(t, func() bool { return unix.Kill(pid, 0) == unix.ESRCH }, 10*time.Second, time.Millisecond)
	group.end(unix.SIGTERM, time.Minute) // not SIGHUP, which is ignored below nohup
	select {
	case <-group.ended:
	case <-time.After(10 * time.Second):
		t.Error("a child is left")
	}
}

func TestStopped(t *testing.T) {
	for cause, want := range map[error]string{
		context.DeadlineExceeded:  "a: no answer in time",
		notWithin(time.Minute):    "a: not within 1m0s",
		errors.New("interrupted"): "a: stopped: interrupted",
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		err := stopped(ctx, "a")
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, cause)
		require.Equal(t, errors.Is(cause, context.DeadlineExceeded), err.Class == remote.Timeout)
	}
}

// FuzzExitError: whatever a host writes, the message is one printable line.
func FuzzExitError(f *testing.F) {
	for _, text := range []string{"", "sudo: a password is required\n", "sudo: genv: command not found", "\x1b[2J\r\n\xff", strings.Repeat("x", 1000)} {
		f.Add(text, 1)
	}
	f.Fuzz(func(t *testing.T, text string, status int) {
		err := exitError("gpu", status, "", []byte(text), nil)
		require.True(t, utf8.ValidString(err.Error()))
		require.Less(t, len(err.Error()), 4000)
		for _, r := range err.Error() {
			require.True(t, unicode.IsGraphic(r), "%q", err.Error())
		}
		require.Contains(t, []remote.Class{remote.Sudo, remote.SudoRefused, remote.GenvMissing, remote.CommandFailed}, err.Class)
		require.Equal(t, text, err.Stderr)
	})
}

// TestStamps: a refused login is worth another try when there is a master, and not when somebody else touches its path.
func TestStamps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cm")
	none := stampOf(path)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NotEqual(t, none, stampOf(path))
	if os.Geteuid() != 0 {
		require.NotEqual(t, "true", os.Getenv("CI"), "this test has to run as root")
		t.Skip("only root can make a file of another user")
	}
	require.NoError(t, os.Chown(path, 65534, 65534))
	require.Equal(t, none, stampOf(path))
}

type reading struct {
	net.Conn
	io.Reader
}

func (r reading) Read(p []byte) (int, error) { return r.Reader.Read(p) }

// FuzzPreface: what is read begins with the version, and is the rest of what came.
func FuzzPreface(f *testing.F) {
	f.Add([]byte("SSH-2.0-x\r\nrest"))
	f.Add([]byte("noise\nSSH-2.0-x\r\n"))
	f.Add([]byte("SSSH-\nSSH\n\nSS\nSSH-"))
	f.Add([]byte(strings.Repeat("\n", 1024) + "SSH-2.0"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		got, err := io.ReadAll(&afterPreface{Conn: reading{Reader: bytes.NewReader(sent)}})
		if len(got) == 0 {
			require.True(t, err != nil || !bytes.Contains(append([]byte("\n"), sent...), []byte("\nSSH-")))
			return
		}
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(got, []byte(versionPrefix)))
		require.True(t, bytes.HasSuffix(sent, got))
		before := sent[:len(sent)-len(got)]
		require.True(t, len(before) == 0 || before[len(before)-1] == '\n')
		require.NotContains(t, "\n"+string(before), "\n"+versionPrefix)
	})
}

// counted counts the reads.
type counted struct {
	io.Reader
	reads int
}

func (c *counted) Read(p []byte) (int, error) {
	c.reads++
	return c.Reader.Read(p)
}

// TestAPrefaceCostsLittle: each read is a call of the kernel, and a host may send eight megabytes at each login.
func TestAPrefaceCostsLittle(t *testing.T) {
	noise := strings.Repeat(strings.Repeat("x", 1000)+"\n", 1000)
	source := &counted{Reader: strings.NewReader(noise + "SSH-2.0-x\r\n")}
	got := proctest.Try(io.ReadAll(&afterPreface{Conn: reading{Reader: source}})).OK(t)
	require.Equal(t, "SSH-2.0-x\r\n", string(got))
	require.Less(t, source.reads, 1000)
}

// TestThePrefacesBufferIsReleased: it would be four kilobytes for each host.
func TestThePrefacesBufferIsReleased(t *testing.T) {
	a := &afterPreface{Conn: reading{Reader: strings.NewReader("noise\nSSH-2.0-x\r\nfirst packet" + strings.Repeat("x", 1<<16))}}
	var version []byte
	for b := make([]byte, 1); !bytes.HasSuffix(version, []byte("\n")); version = append(version, b...) {
		proctest.Try(a.Read(b)).OK(t)
	}
	require.Equal(t, "SSH-2.0-x\r\n", string(version))
	require.NotNil(t, a.buffer)
	require.Equal(t, "first packet"+strings.Repeat("x", 1<<16), string(proctest.Try(io.ReadAll(a)).OK(t)))
	require.Nil(t, a.buffer)
}
