package host_test

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

// dockerImage is the image of all containers: a shell and busybox's programs.
const dockerImage = "lab/train:1"

// dockerStartsWithin is how long dockerd may take to answer: it is slow on a busy machine.
const dockerStartsWithin = time.Minute

// dockerDaemon is a real Docker, in a mount namespace with its own /run and /var/lib, so that the
// machine's own Docker and files are not touched. Containers have no network, and one image, which
// is made from busybox. It needs root and Debian's docker.io and busybox-static. It pulls nothing.
type dockerDaemon struct {
	tb    testing.TB
	cmd   *exec.Cmd
	files string // its files that others see
	// socket is where docker finds the daemon; empty for /run/docker.sock.
	socket string
}

// requireDocker skips the test where no Docker can run.
func requireDocker(t testing.TB) {
	t.Helper()
	proctest.NeedRoot(t)
	proctest.NeedPrograms(t, "dockerd", "docker", "busybox", "unshare", "nsenter", "tar")
}

// dockerScript makes the namespace's own folders and becomes dockerd.
const dockerScript = `set -e
mount -t tmpfs none /run
mount -t tmpfs none /var/lib
mkdir -p /var/lib/docker /run/exec
exec dockerd --data-root /var/lib/docker --exec-root /run/exec -H unix:///run/docker.sock -p /run/dockerd.pid \
  --iptables=false --ip-forward=false --bridge=none --storage-driver=vfs "$@"`

// startDocker starts dockerd with further flags, and makes the image. Everything ends with the test.
func startDocker(t testing.TB, flags ...string) *dockerDaemon {
	t.Helper()
	requireDocker(t)
	d := &dockerDaemon{tb: t, files: t.TempDir()}
	d.start(dockerScript, append([]string{"dockerd"}, flags...)...)
	return d
}

// start runs a script in a mount namespace of its own, and makes the image when it is dockerd.
func (d *dockerDaemon) start(script string, args ...string) {
	d.tb.Helper()
	log := proctest.Try(os.Create(d.logFile())).OK(d.tb)
	defer log.Close()
	d.cmd = exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", script}, args...)...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	require.NoError(d.tb, d.cmd.Start())
	d.tb.Cleanup(d.end)
	d.await()
	d.makeImage()
}

func (d *dockerDaemon) logFile() string { return filepath.Join(d.files, "dockerd.log") }

func (d *dockerDaemon) await() {
	d.tb.Helper()
	var out []byte
	var err error
	for deadline := time.Now().Add(dockerStartsWithin); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if out, err = d.Command("docker", "version").CombinedOutput(); err == nil {
			return
		}
	}
	text, _ := os.ReadFile(d.logFile())
	d.tb.Fatalf("dockerd doesn't answer: %v: %s\n%s", err, out, text)
}

// Command is a command in the namespace of dockerd, in which its socket is.
func (d *dockerDaemon) Command(name string, args ...string) *exec.Cmd {
	pid := strconv.Itoa(d.cmd.Process.Pid)
	cmd := exec.Command("nsenter", append([]string{"--target", pid, "--mount", "--", name}, args...)...)
	if d.socket != "" {
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+d.socket)
	}
	return cmd
}

// Docker runs docker with arguments, and returns what it prints.
func (d *dockerDaemon) Docker(args ...string) string {
	d.tb.Helper()
	cmd := d.Command("docker", args...)
	cmd.Env = append(cmd.Environ(), "HOME="+d.files)
	out := proctest.Output(d.tb, cmd)
	return strings.TrimSpace(out)
}

// Run starts a container without a network in the background, and returns its id.
func (d *dockerDaemon) Run(args ...string) (id string) {
	d.tb.Helper()
	return d.Docker(append([]string{"run", "--detach", "--network", "none"}, args...)...)
}

// Init is the first process of a running container, once it runs the container's program.
func (d *dockerDaemon) Init(container string) snapshot.PID {
	d.tb.Helper()
	pid := proctest.Try(strconv.Atoi(d.Docker("inspect", "--format", "{{.State.Pid}}", container))).OK(d.tb)
	require.Positive(d.tb, pid)
	require.Eventually(d.tb, func() bool {
		command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err != nil || !bytes.HasPrefix(command, []byte("runc\x00init")) // an error: it has ended
	}, time.Minute, 10*time.Millisecond, "runc hasn't started the program of %s", container)
	return snapshot.PID(pid) //nolint:gosec // the kernel's PIDs fit
}

// Runs says whether a container is running.
func (d *dockerDaemon) Runs(container string) bool {
	d.tb.Helper()
	return d.Docker("inspect", "--format", "{{.State.Running}}", container) == "true"
}

// Signal sends a signal to dockerd, for example to stop and to continue it.
func (d *dockerDaemon) Signal(s syscall.Signal) {
	d.tb.Helper()
	require.NoError(d.tb, d.cmd.Process.Signal(s))
}

// makeImage imports a folder with busybox.
func (d *dockerDaemon) makeImage() {
	d.tb.Helper()
	busybox := proctest.Try(exec.LookPath("busybox")).OK(d.tb)
	tree := filepath.Join(d.files, "tree")
	require.NoError(d.tb, os.MkdirAll(filepath.Join(tree, "bin"), 0o755))
	data := proctest.ReadFile(d.tb, busybox)
	require.NoError(d.tb, proctest.WriteProgram(filepath.Join(tree, "bin/busybox"), data))
	for _, name := range []string{"sh", "sleep", "env", "cat"} {
		require.NoError(d.tb, os.Symlink("busybox", filepath.Join(tree, "bin", name)))
	}
	archive := filepath.Join(d.files, "tree.tar")
	proctest.Output(d.tb, exec.Command("tar", "-C", tree, "-cf", archive, "."))
	d.Docker("import", archive, dockerImage)
}

// end removes all containers and ends dockerd, and its containerd with it.
func (d *dockerDaemon) end() {
	_ = d.cmd.Process.Signal(syscall.SIGCONT)
	out, err := d.Command("docker", "ps", "--all", "--quiet", "--no-trunc").Output()
	if ids := strings.Fields(string(out)); err == nil && len(ids) > 0 {
		_ = d.Command("docker", append([]string{"rm", "--force"}, ids...)...).Run()
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	_ = d.cmd.Wait()
}

// rootlessDockerScript gives the user subordinate uids, in accounts of the namespace's own, and
// becomes what dockerd-rootless.sh of Docker becomes, without a network.
const rootlessDockerScript = `set -e
for name in passwd group subuid subgid; do mount --bind "$1/$name" "/etc/$name"; done
dir=$1 uid=$2
shift 2
cd /
exec setpriv --reuid "$uid" --regid "$uid" --clear-groups env -u DOCKER_HOST HOME="$dir/home" XDG_RUNTIME_DIR="$dir/run" \
  rootlesskit --net=host --copy-up=/etc --copy-up=/run --propagation=rslave sh -c 'rm -f /run/docker /run/containerd /run/xtables.lock
exec dockerd --rootless --data-root "$HOME/data" --exec-root "$XDG_RUNTIME_DIR/exec" -H "unix://$XDG_RUNTIME_DIR/docker.sock" -p "$XDG_RUNTIME_DIR/docker.pid" \
  --iptables=false --ip-forward=false --bridge=none --storage-driver=vfs "$@"' dockerd "$@"`

// requireRootlessDocker is requireDocker for startRootlessDocker.
func requireRootlessDocker(t testing.TB) {
	t.Helper()
	requireDocker(t)
	proctest.NeedPrograms(t, "rootlesskit", "newuidmap", "setpriv")
}

// startRootlessDocker starts the Docker of an ordinary user, in a user namespace that the user makes with rootlesskit,
// and makes the image. Containers have the uid, and from firstSubuid on 65,536 others. Everything ends with the test.
func startRootlessDocker(t testing.TB, uid, firstSubuid int, flags ...string) *dockerDaemon {
	t.Helper()
	requireRootlessDocker(t)
	dir := proctest.PublicDir(t, 0o755)
	d := &dockerDaemon{tb: t, files: dir, socket: "unix://" + filepath.Join(dir, "run/docker.sock")}
	subordinate := fmt.Sprintf("rootless:%d:65536\n", firstSubuid)
	for name, add := range map[string]string{
		"passwd": fmt.Sprintf("rootless:x:%d:%d::%s/home:/bin/sh\n", uid, uid, dir), "group": fmt.Sprintf("rootless:x:%d:\n", uid),
		"subuid": subordinate, "subgid": subordinate,
	} {
		known := proctest.ReadFile(t, "/etc/"+name)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), append(known, add...), 0o644))
	}
	for _, name := range []string{"home", "run"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		require.NoError(t, os.Chown(filepath.Join(dir, name), uid, uid))
	}
	d.start(rootlessDockerScript, append([]string{"sh", dir, fmt.Sprint(uid)}, flags...)...)
	return d
}
