package host_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// servedThere is a `genv usage serve` on a host, behind real ssh, sshd and sudo.
type servedThere struct {
	ssh   *exec.Cmd
	in    io.WriteCloser
	token string
}

// serveOn starts one and waits for its greeting. Its token is its own among those of all test binaries.
func serveOn(t *testing.T, f *sshd.Fleet, token string, more ...string) *servedThere {
	token = fmt.Sprint(token, os.Getpid())
	args := append([]string{"-F", f.SSHConfig(), "gpu-01", "sudo", "-n", "genv", "usage", "serve", "--token", token}, more...)
	s := &servedThere{ssh: exec.Command("ssh", args...), token: token}
	var err error
	s.in, err = s.ssh.StdinPipe()
	require.NoError(t, err)
	out, err := s.ssh.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.ssh.Start())
	t.Cleanup(func() {
		_ = s.ssh.Process.Kill() // it may have ended
		_ = s.ssh.Wait()
	})
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if line == "genv-serve "+token+"\n" {
			break
		}
	}
	require.NotEmpty(t, s.there(t))
	return s
}

// there are the processes of this conversation on the host, by their names.
func (s *servedThere) there(t *testing.T) map[int]string {
	found := map[int]string{}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range files {
		line, _ := os.ReadFile(file) // it may have ended
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/", &pid); err != nil || pid == s.ssh.Process.Pid || !strings.Contains(string(line), s.token) {
			continue
		}
		name, _, _ := strings.Cut(string(line), "\x00")
		found[pid] = filepath.Base(name)
	}
	return found
}

func (s *servedThere) requireGone(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(s.there(t)) == 0 }, 20*time.Second, 20*time.Millisecond, "left on the host: %v", s.there(t))
}

// kill ends the processes of the conversation that go by a name.
func (s *servedThere) kill(t *testing.T, name string) (killed int) {
	for pid, n := range s.there(t) {
		if n == name {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			killed++
		}
	}
	return killed
}

// TestNothingIsLeftOnAHost: whatever ends a conversation, in no time there is no
// genv, no sudo and no shell of it on the host.
func TestNothingIsLeftOnAHost(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	t.Run("the controller hangs up", func(t *testing.T) {
		s := serveOn(t, f, "hangsup")
		require.NoError(t, s.in.Close())
		require.NoError(t, s.ssh.Wait(), "the ordinary end")
		s.requireGone(t)
	})
	t.Run("the controller is killed", func(t *testing.T) {
		s := serveOn(t, f, "controllerkilled")
		require.NoError(t, s.ssh.Process.Kill())
		s.requireGone(t)
	})
	t.Run("the connection's sshd is killed", func(t *testing.T) {
		s := serveOn(t, f, "sshdkilled")
		require.NoError(t, f.CutConnections())
		s.requireGone(t)
	})
	t.Run("sudo is killed", func(t *testing.T) {
		s := serveOn(t, f, "sudokilled")
		if s.kill(t, "sudo") == 0 {
			t.Skip("this sudo has become the command, so there is none to kill")
		}
		s.requireGone(t)
	})
	t.Run("the controller is frozen", func(t *testing.T) {
		s := serveOn(t, f, "frozen", "--idle", "4s")
		require.NoError(t, s.ssh.Process.Signal(syscall.SIGSTOP))
		s.requireGone(t)
	})
	t.Run("the controller asks nothing", func(t *testing.T) {
		s := serveOn(t, f, "silent", "--idle", "4s")
		require.NoError(t, s.ssh.Wait(), "the idle time is no failure")
		s.requireGone(t)
	})
	t.Run("the controller speaks wrongly", func(t *testing.T) {
		s := serveOn(t, f, "wrongly")
		_, err := io.WriteString(s.in, "GET / HTTP/1.1\r\n\r\n....")
		require.NoError(t, err)
		require.Error(t, s.ssh.Wait())
		s.requireGone(t)
	})
}

// TestBannersAndNoise: the greeting is found behind whatever a login prints, and the fleet is enforced.
func TestBannersAndNoise(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	rc := filepath.Join(f.Dir, "home", f.Host("gpu-01").User, ".bashrc")
	noise := "printf 'Welcome to gpu-01\\r\\n\\033[1mgenv-serve\\033[0m\\0\\377 gnv1 without an end of line'\necho to stderr >&2\n"
	require.NoError(t, os.WriteFile(rc, []byte(noise), 0o644))
	job, err := f.Host("gpu-01").StartJob(testfleet.Job{User: "bob", Env: genvtest.Outside, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	require.NoError(t, err)
	r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "0", "--non-env-processes", "--format", "json")
	require.Zero(t, r.Code, r.Err)
	require.Contains(t, r.Out, `"via":{"gpu-01":"stream"}`)
	require.False(t, job.Running())
}
