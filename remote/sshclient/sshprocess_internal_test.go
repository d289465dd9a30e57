package sshclient

import (
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// TestCommandLines pins what ssh is told. Real ones are in the tests of sshclient.
func TestSSHCommandLines(t *testing.T) {
	const fixed = "ssh -T -a -x -oBatchMode=yes -oStrictHostKeyChecking=yes -oControlMaster=no -oClearAllForwardings=yes -oPermitLocalCommand=no -oLogLevel=ERROR "
	l := sshCommand{program: "ssh", arguments: []string{"-F", "file", "--", "gpu"}}
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
	s, err := (&sshLogin{sshCommand: sshCommand{program: program}}).newProcess()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Start("true"))
	return s
}

// TestEndedBeforeStart: a connection that is closed leaves no ssh behind.
func TestEndedBeforeStart(t *testing.T) {
	s, err := (&sshLogin{sshCommand: sshCommand{program: "/bin/true"}}).newProcess()
	require.NoError(t, err)
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
			said, err := io.ReadAll(s.pipes[2].ours)
			require.NoError(t, err)
			require.Empty(t, said)
			var exit statusError
			switch err := s.Wait(); {
			case tt.err != nil:
				require.ErrorIs(t, err, tt.err)
			case tt.status > 0:
				require.ErrorAs(t, err, &exit)
				require.Equal(t, tt.status, exit.ExitStatus())
			case tt.status < 0:
				require.Error(t, err)
				require.NotErrorAs(t, err, &exit)
				require.NotErrorIs(t, err, errSSH)
			default:
				require.NoError(t, err)
			}
		})
	}
}

// TestClose: ssh that does not react is killed, with its children.
func TestSSHCloses(t *testing.T) {
	s := pretend(t, "trap '' HUP TERM; sleep 1000 & echo started; wait; wait; sleep 1000")
	_, err := io.ReadFull(s.pipes[1].ours, make([]byte, len("started")))
	require.NoError(t, err)
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
	group, err := startGroup(command)
	require.NoError(t, err)
	pid := command.Process.Pid
	t.Cleanup(func() { _ = unix.Kill(-pid, unix.SIGKILL) }) // it has ended
	go group.reap(false)
	require.Eventually(t, func() bool { return unix.Kill(pid, 0) == unix.ESRCH }, 10*time.Second, time.Millisecond)
	group.end(unix.SIGHUP, time.Minute)
	select {
	case <-group.ended:
	case <-time.After(10 * time.Second):
		t.Error("a child is left")
	}
}
