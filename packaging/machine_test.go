package packaging

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// machine is a private machine: this one's files in an overlay, with its own
// processes, network and accounts. See testdata/machine.sh.
type machine struct {
	t     *testing.T
	pid   int // of its PID 1, here
	stdin io.WriteCloser
}

// startMachine starts a machine without systemd. It ends with the test.
func startMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		skip(t, "a private machine needs root")
	}
	proctest.NeedPrograms(t, "unshare", "nsenter", "mount", "pivot_root", "ip", "dpkg", "useradd", "setpriv")
	dir, name := t.TempDir(), fmt.Sprintf("genv-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	cmd := exec.Command("/bin/sh", "testdata/machine.sh", dir, name)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL, // the kernel ends all its processes with PID 1
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin := proctest.Try(cmd.StdinPipe()).OK(t)
	stdout := proctest.Try(cmd.StdoutPipe()).OK(t)
	if err := cmd.Start(); err != nil {
		skip(t, "namespaces are not available here: "+err.Error())
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		removeCgroups(t, dir, name)
	})
	if line, _ := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		_ = cmd.Wait()
		skip(t, "a private machine can't be started here: "+stderr.String())
	}
	return &machine{t: t, pid: cmd.Process.Pid, stdin: stdin}
}

// removeCgroups removes what systemd made below the machine's cgroup.
func removeCgroups(t *testing.T, dir, name string) {
	remove := exec.Command("/bin/sh", "-c", `mount -t cgroup2 none "$1" && cd "$1" && [ ! -d "$2" ] || find "$2" -depth -type d -exec rmdir {} +`, "sh", dir, name)
	remove.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := remove.CombinedOutput(); err != nil {
		t.Logf("the cgroup %s is left: %v: %s", name, err, out)
	}
}

// boot turns PID 1 into systemd, and waits until it runs.
func (m *machine) boot() {
	m.t.Helper()
	proctest.NeedPrograms(m.t, "/lib/systemd/systemd", "systemctl")
	proctest.Try(io.WriteString(m.stdin, "boot\n")).OK(m.t)
	var state string
	booted := func() bool {
		state, _ = m.run("systemctl", "is-system-running")
		return strings.TrimSpace(state) == "running"
	}
	for deadline := time.Now().Add(time.Minute); !booted(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) || syscall.Kill(m.pid, 0) != nil {
			skip(m.t, "systemd can't be booted in a namespace here: "+state)
		}
	}
}

// command is a program in the machine.
func (m *machine) command(words ...string) *exec.Cmd {
	words = append([]string{"--target", strconv.Itoa(m.pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd", "--"}, words...)
	cmd := exec.Command("nsenter", words...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}
	return cmd
}

// run runs a program in the machine, and returns its stdout and stderr together.
func (m *machine) run(words ...string) (string, error) {
	out, err := m.command(words...).CombinedOutput()
	return string(out), err
}

func (m *machine) must(words ...string) string {
	m.t.Helper()
	out, err := m.run(words...)
	require.NoError(m.t, err, "%s: %s", strings.Join(words, " "), out)
	return out
}

// sh runs a shell script in the machine that must succeed.
func (m *machine) sh(script string) string {
	m.t.Helper()
	return m.must("/bin/sh", "-ec", script)
}

// as runs a shell script as another account of the machine.
func (m *machine) as(account, script string) (string, error) {
	return m.run("setpriv", "--reuid", account, "--regid", account, "--init-groups", "/bin/sh", "-c", script)
}

// path is a file of the machine, as seen from here.
func (m *machine) path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(m.pid), "root", path)
}

func (m *machine) write(path, text string, mode os.FileMode) {
	m.t.Helper()
	require.NoError(m.t, os.WriteFile(m.path(path), []byte(text), mode))
}

// copyIn copies a file into the machine.
func (m *machine) copyIn(from, to string, mode os.FileMode) {
	m.t.Helper()
	data := proctest.ReadFile(m.t, from)
	m.write(to, string(data), mode)
}

func (m *machine) exists(path string) bool {
	_, err := os.Lstat(m.path(path))
	return err == nil
}

// owner is the owner and the mode of a file, as in "root 755".
func (m *machine) owner(path string) string {
	m.t.Helper()
	return strings.TrimSpace(m.must("stat", "-c", "%U %a", path))
}

// install puts a .deb of this version into the machine, installs it, and returns what that prints.
func (m *machine) install(version string) string {
	m.t.Helper()
	m.copyIn(only(m.t, pack(m.t, version), "*.deb"), "/tmp/genv.deb", 0o644)
	return m.must("dpkg", "--install", "/tmp/genv.deb")
}
