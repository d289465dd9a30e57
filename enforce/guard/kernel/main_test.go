package kernel_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard/kernel"
)

// roles are what a child process of a test may be. Its arguments follow.
var roles = map[string]func(args []string) error{
	"opener": opener,
	"holder": holder,
}

const (
	roleVariable = "GENV_GUARD_TEST_ROLE"
	insideRole   = "inside"
)

// TestMain runs the tests in a mount namespace of their own, in which they make device
// nodes and mount a bpffs. Nothing of it is seen outside.
func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); {
	case role == insideRole:
		_ = os.Unsetenv(roleVariable)
		os.Exit(inside(m))
	case role != "":
		if err := roles[role](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
	case os.Geteuid() != 0:
		os.Exit(m.Run())
	default:
		os.Exit(inNamespace(m))
	}
}

func inNamespace(m *testing.M) int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), roleVariable+"="+insideRole)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		errUnavailable = fmt.Errorf("there is no mount namespace: %w", err)
		return m.Run()
	}
	return 0
}

// place is the folder of the tests' own mounts: nodes, programs, bpf and cgroup2 where the
// machine has none.
var place string

// errUnavailable says why no guard can be tested here; nil if it can.
var errUnavailable = errors.New("this is not root")

func inside(m *testing.M) int {
	var err error
	if place, err = os.MkdirTemp("", "genv-guard-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(place)
	errUnavailable = prepare()
	defer unix.Unmount(place, unix.MNT_DETACH)
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// prepare mounts what the tests need, and tries to attach a guard.
func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("genv", place, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	for dir, fs := range map[string]string{"bpf": "bpf", "cgroup": "cgroup2"} {
		if err := os.Mkdir(filepath.Join(place, dir), 0o755); err != nil {
			return err
		}
		if err := unix.Mount(fs, filepath.Join(place, dir), fs, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", fs, err)
		}
	}
	if err := install(filepath.Join(place, "opener"), 0o755); err != nil {
		return err
	}
	cg, err := os.MkdirTemp(filepath.Join(place, "cgroup"), "genv-guard-test-")
	if err != nil {
		return fmt.Errorf("make a cgroup: %w", err)
	}
	defer os.Remove(cg)
	g, err := kernel.Open(kernel.Options{Unpinned: true, Cgroup: cg})
	if err != nil {
		return err
	}
	return g.Close()
}

// install copies this program to where every user can start it.
func install(path string, mode os.FileMode) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	return errors.Join(to.Close(), os.Chmod(path, mode))
}

// needsGuard skips a test where no guard can be attached; in CI that is a failure if this
// is root.
func needsGuard(t testing.TB) {
	t.Helper()
	if errUnavailable == nil {
		return
	}
	if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
		t.Fatalf("CI=true, so the guard's tests must run, but %v", errUnavailable)
	}
	t.Skipf("skipped, because it needs a kernel that can be guarded: %v", errUnavailable)
}

// site is a cgroup with a guard of its own, pins, and processes in it.
type site struct {
	testing.TB
	cgroup, pins, dev string
}

func newSite(t testing.TB) *site {
	t.Helper()
	needsGuard(t)
	return &site{TB: t, cgroup: newCgroup(t), pins: filepath.Join(place, "bpf", strings.ReplaceAll(t.Name(), "/", "_")), dev: newDev(t)}
}

// newCgroup makes a cgroup below the root, and removes it at the end.
func newCgroup(t testing.TB) string {
	t.Helper()
	cg, err := os.MkdirTemp(filepath.Join(place, "cgroup"), "genv-guard-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.Remove(cg)) })
	return cg
}

// minors are those of the nodes in a newDev.
var minors = []int{0, 1, 2, 63, 64, 200, 253, 254, 255}

// newDev makes a folder with nodes of GPUs and of the driver's other devices.
func newDev(t testing.TB) string {
	t.Helper()
	dev, err := os.MkdirTemp(place, "dev-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dev, 0o777))
	for _, minor := range minors {
		makeNode(t, filepath.Join(dev, fmt.Sprintf("nvidia%d", minor)), 195, minor)
	}
	return dev
}

func makeNode(t testing.TB, path string, major, minor int) {
	t.Helper()
	require.NoError(t, unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(uint32(major), uint32(minor)))))
	require.NoError(t, os.Chmod(path, 0o666))
}

func (s *site) options() kernel.Options { return kernel.Options{Dir: s.pins, Cgroup: s.cgroup} }

func (s *site) node(minor int) string { return filepath.Join(s.dev, fmt.Sprintf("nvidia%d", minor)) }

// open opens the site's guard, pinned.
func (s *site) open() *kernel.Guard { return s.openWith(s.options()) }

func (s *site) openWith(o kernel.Options) *kernel.Guard {
	s.Helper()
	g, err := kernel.Open(o)
	require.NoError(s, err)
	s.Cleanup(func() {
		require.NoError(s, g.Close())
		if !o.Unpinned {
			require.NoError(s, kernel.Remove(o.Dir))
		}
	})
	return g
}

// process is a child in the site's cgroup that opens files on request.
type process struct {
	testing.TB
	mu  sync.Mutex
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// user starts an opener as this uid in the site's cgroup.
func (s *site) user(uid int) *process {
	return s.start(&syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}, filepath.Join(place, "opener"))
}

func (s *site) start(as *syscall.Credential, program string, args ...string) *process {
	s.Helper()
	folder, err := os.Open(s.cgroup)
	require.NoError(s, err)
	defer folder.Close()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), roleVariable+"=opener", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, UseCgroupFD: true, CgroupFD: int(folder.Fd()), Pdeathsig: 0}
	p := &process{TB: s, cmd: cmd}
	p.in, err = cmd.StdinPipe()
	require.NoError(s, err)
	out, err := cmd.StdoutPipe()
	require.NoError(s, err)
	p.out = bufio.NewReader(out)
	require.NoError(s, cmd.Start())
	s.Cleanup(func() {
		_ = p.in.Close()
		_ = cmd.Wait()
	})
	return p
}

// open says how open(2) of the path ended: "denied" is EPERM, "allowed" is ENXIO, since
// there is no driver behind the node.
func (p *process) open(path string) string { return p.ask("open " + path) }

func (p *process) ask(request string) string {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := fmt.Fprintln(p.in, request)
	require.NoError(p, err)
	answer, err := p.out.ReadString('\n')
	require.NoError(p, err)
	switch answer = strings.TrimSpace(answer); answer {
	case "EPERM":
		return "denied"
	case "ENXIO":
		return "allowed"
	default:
		return answer
	}
}
