package guard

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
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
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard/guardtest"
	"github.com/seed-3119e985/genv/enforce/guard/kernel"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// The roles of children of the tests.
const (
	userRole   = "user"
	unableRole = "unable"
)

// TestMain runs the tests in a mount namespace of their own, or a role.
func TestMain(m *testing.M) {
	proctest.RunStall()
	role := os.Getenv(guardtest.RoleVariable)
	if role == unableRole {
		fmt.Fprintln(os.Stderr, unable())
		os.Exit(1)
	}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if name != guardtest.RoleVariable && (strings.HasPrefix(name, "GENV_") || strings.HasPrefix(name, "SUDO_")) {
			_ = os.Unsetenv(name)
		}
	}
	if role == userRole {
		if err := user(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(guardtest.Main(m, func() error {
		place = guardtest.Place()
		self, err := os.Executable()
		return errors.Join(err, testfleet.CopyProgram(self, filepath.Join(place, "user")), testfleet.InstallProgram("cmd/genv", filepath.Join(place, "genv")))
	}))
}

// place is the folder of the tests' own mounts.
var place string

const alice, bob, mallory = 4001, 4002, 4003

// site is a host with four GPUs, of which index i has minor 3-i, in a cgroup of its own. Its nvidia-smi hangs.
type site struct {
	testing.TB
	dir, cgroup, pins, state, root, log string

	able   ability // what genv's processes lack
	folder string  // GENV_GUARD_CGROUP; empty for cgroup
}

// newSite is a site for a test that runs in parallel with others.
func newSite(t *testing.T) *site {
	t.Helper()
	t.Parallel()
	return serialSite(t)
}

func serialSite(t *testing.T) *site {
	t.Helper()
	guardtest.Need(t)
	dir := proctest.Try(os.MkdirTemp(place, "site-")).OK(t)
	require.NoError(t, os.Chmod(dir, 0o755))
	s := &site{
		TB: t, dir: dir, state: filepath.Join(dir, "state"), root: filepath.Join(dir, "root"), log: filepath.Join(dir, "log", "audit.jsonl"),
		pins: filepath.Join(place, "bpf", filepath.Base(dir)), cgroup: filepath.Join(place, "cgroup", "genv-guard-test-"+filepath.Base(dir)),
	}
	require.NoError(t, os.Mkdir(s.cgroup, 0o755))
	t.Cleanup(func() { // the kernel removes processes from a cgroup after they were waited for
		require.Eventually(t, func() bool { return os.Remove(s.cgroup) == nil }, 10*time.Second, 10*time.Millisecond)
	})
	t.Cleanup(func() { require.NoError(t, kernel.Remove(s.pins)) })
	for index := range 4 {
		minor := 3 - index
		gpu := filepath.Join(s.root, "proc/driver/nvidia/gpus", fmt.Sprintf("0000:%02x:00.0", index+1))
		require.NoError(t, os.MkdirAll(gpu, 0o755))
		text := fmt.Sprintf("Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-%d\nDevice Minor: \t %d\n", index, minor)
		require.NoError(t, os.WriteFile(filepath.Join(gpu, "information"), []byte(text), 0o644))
		require.NoError(t, unix.Mknod(s.node(index), unix.S_IFCHR|0o666, int(unix.Mkdev(195, uint32(minor)))))
		require.NoError(t, os.Chmod(s.node(index), 0o666))
	}
	devices := proctest.Try(hardware.FromDriver(filepath.Join(s.root, "proc"))).OK(t)
	require.NoError(t, hardware.Publish(filepath.Join(s.root, "run"), devices))
	require.NoError(t, proctest.WriteProgram(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\nexec sleep 600\n")))
	require.NoError(t, os.Mkdir(s.state, 0o777))
	require.NoError(t, os.Chmod(s.state, 0o777))
	var files state.Files
	for index := range snapshot.DeviceIndex(4) {
		files.Devices = append(files.Devices, snapshot.Device{Index: index, TotalMemory: snapshot.MiB(81920)})
	}
	s.forge(state.Devices, &files)
	require.NoError(t, os.Chmod(filepath.Join(s.state, "devices.json"), 0o666))
	return s
}

// node is the device node of the GPU at an index.
func (s *site) node(index int) string { return filepath.Join(s.dir, fmt.Sprintf("nvidia%d", 3-index)) }

// write writes a state file in place and without the lock, as any user can.
func (s *site) write(name, text string) {
	s.Helper()
	require.NoError(s, os.WriteFile(filepath.Join(s.state, name), []byte(text), 0o666))
}

func (s *site) forge(file state.File, files *state.Files) {
	s.Helper()
	data := proctest.Try(files.Encode(file)).OK(s)
	s.write(file.String(), string(data))
}

// files are the state files as they are.
func (s *site) files() *state.Files {
	s.Helper()
	files := &state.Files{}
	for _, file := range []state.File{state.Envs, state.Devices} {
		require.NoError(s, files.Decode(file, proctest.ReadFile(s, filepath.Join(s.state, file.String()))))
	}
	return files
}

func (s *site) environ() []string {
	return []string{
		"PATH=" + s.dir + ":/usr/bin:/bin:/usr/sbin:/sbin", "GENV_ROOT_DIR=" + s.root, "GENV_TMPDIR=" + s.state, "GENV_GUARD_PINS=" + s.pins,
		"GENV_GUARD_CGROUP=" + cmp.Or(s.folder, s.cgroup), "GENV_AUDIT_LOG=" + s.log, "GENV_CONFIG_DIR=off", "HOME=" + s.dir,
	}
}

// command is genv with these arguments.
func (s *site) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(place, "genv"), args...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = s.environ(), "/", &syscall.SysProcAttr{}
	if s.able != "" {
		cmd.Path = filepath.Join(place, "user")
		cmd.Env = append(cmd.Env, guardtest.RoleVariable+"="+unableRole, abilityVariable+"="+string(s.able))
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	return cmd
}

// genvAs runs genv as a user.
func (s *site) genvAs(uid int, args ...string) (string, error) {
	cmd := s.command(args...)
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *site) must(args ...string) string { return s.mustAs(0, args...) }

func (s *site) mustAs(uid int, args ...string) string {
	s.Helper()
	out, err := s.genvAs(uid, args...)
	require.NoError(s, err, out)
	return out
}

func (s *site) failsAs(uid int, args ...string) string {
	s.Helper()
	out, err := s.genvAs(uid, args...)
	require.Error(s, err, out)
	return out
}

// guardRun is a running `genv guard run`.
type guardRun struct {
	*site
	cmd  *exec.Cmd
	log  *testfleet.ProgramOutput
	done chan struct{}
	err  error
}

func (s *site) run(args ...string) *guardRun {
	s.Helper()
	return s.start(append([]string{"guard", "run"}, args...)...)
}

// start starts genv as root, and ends it with the test.
func (s *site) start(args ...string) *guardRun {
	s.Helper()
	cmd := s.command(args...)
	g := &guardRun{site: s, cmd: cmd, log: &testfleet.ProgramOutput{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = g.log, g.log
	require.NoError(s, cmd.Start())
	go func() { g.err = cmd.Wait(); close(g.done) }()
	s.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-g.done
		if s.Failed() {
			s.Log(g.log.String())
		}
	})
	return g
}

// enforce begins to run the guard in mode enforce, with a lease that no test waits for.
func (s *site) enforce() *guardRun {
	s.Helper()
	return s.run("--mode", "enforce", "--lease", "60s")
}

// signal ends the process, unless the signal stops it.
func (g *guardRun) signal(sig syscall.Signal) {
	g.Helper()
	require.NoError(g, g.cmd.Process.Signal(sig))
	if sig == syscall.SIGSTOP {
		return
	}
	select {
	case <-g.done:
	case <-time.After(20 * time.Second):
		g.Fatal("genv guard run doesn't end")
	}
}

// document is `genv guard status --format json`.
func (s *site) document() (d StatusDocument) {
	s.Helper()
	require.NoError(s, json.Unmarshal([]byte(s.must("guard", "status", "--format", "json")), &d))
	return d
}

// person is a process of a user in the site's cgroup, and in an environment.
type person struct {
	*site
	uid int
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (s *site) person(uid int) *person {
	s.Helper()
	folder, err := os.Open(s.cgroup)
	require.NoError(s, err)
	defer folder.Close()
	cmd := exec.Command(filepath.Join(place, "user"))
	cmd.Env, cmd.Dir, cmd.Stderr = append(s.environ(), guardtest.RoleVariable+"="+userRole, "GORACE=atexit_sleep_ms=0"), "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}, UseCgroupFD: true, CgroupFD: int(folder.Fd())}
	p := &person{site: s, uid: uid, cmd: cmd}
	p.in, err = cmd.StdinPipe()
	require.NoError(s, err)
	out := proctest.Try(cmd.StdoutPipe()).OK(s)
	p.out = bufio.NewReader(out)
	require.NoError(s, cmd.Start())
	s.Cleanup(p.end)
	return p
}

func (p *person) end() {
	_ = p.in.Close()
	_ = p.cmd.Wait()
}

// activate registers the person's process in an environment named after its uid.
func (p *person) activate() *person {
	p.Helper()
	p.must("envs", "activate", "--eid", string(p.eid()), "--pid", fmt.Sprint(p.cmd.Process.Pid), "--uid", fmt.Sprint(p.uid), "--username", fmt.Sprint("u", p.uid))
	return p
}

func (p *person) eid() snapshot.EnvID { return snapshot.EnvID(fmt.Sprint("e", p.uid)) }

// attach attaches the person's environment as genv's commands do.
func (p *person) attach(index snapshot.DeviceIndex) {
	p.Helper()
	p.update(func(f *state.Files) error {
		_, err := f.Attach(state.AttachRequest{EID: p.eid(), Indices: []snapshot.DeviceIndex{index}, OverSubscribe: true, At: snapshot.DateOf(time.Now())})
		return err
	})
}

func (p *person) detach(index snapshot.DeviceIndex) {
	p.Helper()
	p.update(func(f *state.Files) error { f.Detach(p.eid(), index); return nil })
}

func (p *person) update(change func(*state.Files) error) {
	p.Helper()
	require.NoError(p, disk.New(p.state, disk.Config{RootDir: p.root}).Update(p.Context(), change))
}

func (p *person) ask(verb string, index int) string {
	p.Helper()
	return p.askPath(verb, p.node(index))
}

func (p *person) askPath(verb, path string) string {
	p.Helper()
	proctest.Try(fmt.Fprintln(p.in, verb, path)).OK(p)
	answer := proctest.Try(p.out.ReadString('\n')).OK(p)
	return strings.TrimSpace(answer)
}

// opens says whether the person can open a device now.
func (p *person) opens(index int) bool { return p.ask("open", index) == "allowed" }

// until waits until an open is allowed or denied, and returns when that was.
func (p *person) until(what string, index int) time.Time {
	p.Helper()
	var at int64
	proctest.Try(fmt.Sscan(p.ask(what, index), &at)).OK(p, "not %s within 20 s", what)
	return time.Unix(0, at)
}

// user opens what it is told to. Without a driver behind the node, an open that is let through fails with ENXIO.
func user() error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		verb, path, _ := strings.Cut(lines.Text(), " ")
		fmt.Println(answer(verb, path))
	}
	return lines.Err()
}

func answer(verb, path string) string {
	begun := time.Now()
	for {
		_, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		result := "allowed"
		if errors.Is(err, unix.EPERM) {
			result = "denied"
		} else if !errors.Is(err, unix.ENXIO) {
			return fmt.Sprint(err)
		}
		switch {
		case verb == "open":
			return result
		case verb == result:
			return fmt.Sprint(time.Now().UnixNano())
		case time.Since(begun) > 20*time.Second:
			return "timeout"
		}
		time.Sleep(100 * time.Microsecond)
	}
}
