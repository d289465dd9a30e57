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
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard/guardtest"
	"github.com/seed-3119e985/genv/enforce/guard/kernel"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// roles are what a child process of a test may be. Its arguments follow.
var roles = map[string]func(args []string) error{
	"opener": opener,
	"holder": holder,
}

// TestMain runs the tests in a mount namespace of their own, or a role.
func TestMain(m *testing.M) {
	if role := roles[os.Getenv(guardtest.RoleVariable)]; role != nil {
		if err := role(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(guardtest.Main(m, func() error {
		place = guardtest.Place()
		return install(filepath.Join(place, "opener"), 0o755)
	}))
}

// place is the folder of the tests' own mounts: nodes, programs, bpf and cgroup2.
var place string

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

// site is a cgroup with a guard of its own, pins, and processes in it.
type site struct {
	testing.TB
	cgroup, pins, dev string
}

func newSite(t testing.TB) *site {
	t.Helper()
	guardtest.Need(t)
	cgroup := proctest.Try(os.MkdirTemp(filepath.Join(place, "cgroup"), "genv-guard-test-")).OK(t)
	t.Cleanup(func() { require.NoError(t, os.Remove(cgroup)) })
	return &site{TB: t, cgroup: cgroup, pins: filepath.Join(place, "bpf", strings.ReplaceAll(t.Name(), "/", "_")), dev: newDev(t)}
}

// minors are those of the nodes in a newDev.
var minors = []int{0, 1, 2, 63, 64, 200, 253, 254, 255}

// newDev makes a folder with nodes of GPUs and of the driver's other devices.
func newDev(t testing.TB) string {
	t.Helper()
	dev := proctest.Try(os.MkdirTemp(place, "dev-")).OK(t)
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

func (s *site) options() kernel.Location { return kernel.Location{Dir: s.pins, Cgroup: s.cgroup} }

func (s *site) node(minor int) string { return filepath.Join(s.dev, fmt.Sprintf("nvidia%d", minor)) }

// open opens the site's guard, pinned.
func (s *site) open() *kernel.Guard { return s.openWith(s.options()) }

func (s *site) openWith(o kernel.Location) *kernel.Guard {
	s.Helper()
	g := proctest.Try(kernel.Open(o)).OK(s)
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
	cmd.Env = append(os.Environ(), guardtest.RoleVariable+"=opener", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, UseCgroupFD: true, CgroupFD: int(folder.Fd()), Pdeathsig: 0}
	p := &process{TB: s, cmd: cmd}
	p.in, err = cmd.StdinPipe()
	require.NoError(s, err)
	out := proctest.Try(cmd.StdoutPipe()).OK(s)
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
	proctest.Try(fmt.Fprintln(p.in, request)).OK(p)
	answer := proctest.Try(p.out.ReadString('\n')).OK(p)
	switch answer = strings.TrimSpace(answer); answer {
	case "EPERM":
		return "denied"
	case "ENXIO":
		return "allowed"
	default:
		return answer
	}
}
