// Package guardtest runs tests that may guard devices: in their own mount namespace, with device nodes, a bpffs and
// cgroup2, unseen outside. No test attaches anything to the machine's root cgroup.
//
//	func TestMain(m *testing.M) { os.Exit(guardtest.Main(m, nil)) }
//	func TestX(t *testing.T) { guardtest.Need(t); cgroup := filepath.Join(guardtest.Place(), "cgroup", …) }
package guardtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard/kernel"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// RoleVariable says what a process of the tests' program is.
const RoleVariable = "GENV_GUARD_TEST_ROLE"

// inside is the role of the process that runs the tests.
const inside = "inside"

var (
	place          string
	errUnavailable = errors.New("this is not root")
)

// Place is the folder of the tests' mounts: bpf, cgroup, and a tmpfs for device nodes.
func Place() string { return place }

// Main runs the tests, as root in a namespace after prepare, if set, and returns their exit code.
func Main(m *testing.M, prepare func() error) int {
	switch {
	case os.Getenv(RoleVariable) == inside:
		_ = os.Unsetenv(RoleVariable)
		return runInside(m, prepare)
	case os.Geteuid() != 0:
		return run(m)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), RoleVariable+"="+inside)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr //nolint:forbidigo // the tests are that program
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		errUnavailable = fmt.Errorf("there is no mount namespace: %w", err)
		return run(m)
	}
	return 0
}

// run runs the tests, which leave no goroutine.
func run(m *testing.M) int {
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		return fail(err)
	}
	return code
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err) //nolint:forbidigo // the tests' own stderr
	return 1
}

func runInside(m *testing.M, prepare func() error) int {
	var err error
	if place, err = os.MkdirTemp("", "genv-guard-"); err != nil {
		return fail(err)
	}
	defer os.RemoveAll(place)
	if errUnavailable = mount(); errUnavailable == nil && prepare != nil {
		if err := prepare(); err != nil {
			return fail(err)
		}
	}
	defer unix.Unmount(place, unix.MNT_DETACH)
	return run(m)
}

// mount mounts what the tests need, and tries to attach a guard.
func mount() error {
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
	cg, err := os.MkdirTemp(filepath.Join(place, "cgroup"), "genv-guard-test-")
	if err != nil {
		return fmt.Errorf("make a cgroup: %w", err)
	}
	defer os.Remove(cg)
	g, err := kernel.Open(kernel.Location{Unpinned: true, Cgroup: cg})
	if err != nil {
		return err
	}
	return g.Close()
}

// Need skips a test where no guard can be attached.
func Need(t testing.TB) {
	t.Helper()
	proctest.Need(t, errUnavailable == nil, fmt.Sprintf("a kernel that can be guarded, and %v", errUnavailable))
}
