package dockerd

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Image is the image of all containers: a shell and busybox's programs.
const Image = "lab/train:1"

// startWithin is how long dockerd may take to answer: it is slow on a busy machine.
const startWithin = time.Minute

// Daemon is a running dockerd.
type Daemon struct {
	t   testing.TB
	cmd *exec.Cmd
	dir string // its files that others see
	// host is where docker finds the daemon; empty for /run/docker.sock.
	host string
}

// Require skips the test where no Docker can run.
func Require(t testing.TB) {
	t.Helper()
	proctest.NeedRoot(t)
	proctest.NeedPrograms(t, "dockerd", "docker", "busybox", "unshare", "nsenter", "tar")
}

// script makes the namespace's own folders and becomes dockerd.
const script = `set -e
mount -t tmpfs none /run
mount -t tmpfs none /var/lib
mkdir -p /var/lib/docker /run/exec
exec dockerd --data-root /var/lib/docker --exec-root /run/exec -H unix:///run/docker.sock -p /run/dockerd.pid \
  --iptables=false --bridge=none --storage-driver=vfs "$@"`

// Start starts dockerd with further flags, and makes the image. Everything ends with the
// test.
func Start(t testing.TB, flags ...string) *Daemon {
	t.Helper()
	Require(t)
	d := &Daemon{t: t, dir: t.TempDir()}
	d.start(script, append([]string{"dockerd"}, flags...)...)
	return d
}

// start runs a script in a mount namespace of its own, and makes the image when it is dockerd.
func (d *Daemon) start(script string, args ...string) {
	d.t.Helper()
	log, err := os.Create(d.log())
	require.NoError(d.t, err)
	defer log.Close()
	d.cmd = exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", script}, args...)...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	require.NoError(d.t, d.cmd.Start())
	d.t.Cleanup(d.end)
	d.await()
	d.makeImage()
}

func (d *Daemon) log() string { return filepath.Join(d.dir, "dockerd.log") }

func (d *Daemon) await() {
	d.t.Helper()
	var out []byte
	var err error
	for deadline := time.Now().Add(startWithin); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if out, err = d.Command("docker", "version").CombinedOutput(); err == nil {
			return
		}
	}
	text, _ := os.ReadFile(d.log())
	d.t.Fatalf("dockerd doesn't answer: %v: %s\n%s", err, out, text)
}

// Command is a command in the namespace of dockerd, in which its socket is.
func (d *Daemon) Command(name string, args ...string) *exec.Cmd {
	pid := strconv.Itoa(d.cmd.Process.Pid)
	cmd := exec.Command("nsenter", append([]string{"--target", pid, "--mount", "--", name}, args...)...)
	if d.host != "" {
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+d.host)
	}
	return cmd
}

// Docker runs docker with arguments, and returns what it prints.
func (d *Daemon) Docker(args ...string) string {
	d.t.Helper()
	cmd := d.Command("docker", args...)
	cmd.Env = append(cmd.Environ(), "HOME="+d.dir)
	out, err := cmd.CombinedOutput()
	require.NoError(d.t, err, "docker %s: %s", strings.Join(args, " "), out)
	return strings.TrimSpace(string(out))
}

// Run starts a container without a network in the background, and returns its id.
func (d *Daemon) Run(args ...string) (id string) {
	d.t.Helper()
	return d.Docker(append([]string{"run", "--detach", "--network", "none"}, args...)...)
}

// Init is the first process of a running container, once it runs the container's program.
func (d *Daemon) Init(container string) snapshot.PID {
	d.t.Helper()
	pid, err := strconv.Atoi(d.Docker("inspect", "--format", "{{.State.Pid}}", container))
	require.NoError(d.t, err)
	require.Positive(d.t, pid)
	require.Eventually(d.t, func() bool {
		command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err != nil || !bytes.HasPrefix(command, []byte("runc\x00init")) // an error: it has ended
	}, time.Minute, 10*time.Millisecond, "runc hasn't started the program of %s", container)
	return snapshot.PID(pid) //nolint:gosec // the kernel's PIDs fit
}

// Runs says whether a container is running.
func (d *Daemon) Runs(container string) bool {
	d.t.Helper()
	return d.Docker("inspect", "--format", "{{.State.Running}}", container) == "true"
}

// Signal sends a signal to dockerd, for example to stop and to continue it.
func (d *Daemon) Signal(s syscall.Signal) {
	d.t.Helper()
	require.NoError(d.t, d.cmd.Process.Signal(s))
}

// makeImage imports a folder with busybox.
func (d *Daemon) makeImage() {
	d.t.Helper()
	busybox, err := exec.LookPath("busybox")
	require.NoError(d.t, err)
	tree := filepath.Join(d.dir, "tree")
	require.NoError(d.t, os.MkdirAll(filepath.Join(tree, "bin"), 0o755))
	data, err := os.ReadFile(busybox)
	require.NoError(d.t, err)
	require.NoError(d.t, os.WriteFile(filepath.Join(tree, "bin/busybox"), data, 0o755))
	for _, name := range []string{"sh", "sleep", "env", "cat"} {
		require.NoError(d.t, os.Symlink("busybox", filepath.Join(tree, "bin", name)))
	}
	archive := filepath.Join(d.dir, "tree.tar")
	out, err := exec.Command("tar", "-C", tree, "-cf", archive, ".").CombinedOutput()
	require.NoError(d.t, err, "%s", out)
	d.Docker("import", archive, Image)
}

// end removes all containers and ends dockerd, and its containerd with it.
func (d *Daemon) end() {
	_ = d.cmd.Process.Signal(syscall.SIGCONT)
	out, err := d.Command("docker", "ps", "--all", "--quiet", "--no-trunc").Output()
	if ids := strings.Fields(string(out)); err == nil && len(ids) > 0 {
		_ = d.Command("docker", append([]string{"rm", "--force"}, ids...)...).Run()
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	_ = d.cmd.Wait()
}
