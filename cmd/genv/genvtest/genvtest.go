// Package genvtest is what the tests of genv's commands share: they run a command line in this
// process, or the program, built once for each test binary.
//
//	func TestMain(m *testing.M) { genvtest.Main(m) }
//
//	r := genvtest.Run(t, "remote", "devices", "-H", "gpu-01")
//	require.Zero(t, r.Code, r.Err)
//
// What only one command's tests need is in the _test.go files there.
package genvtest

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/cmd/genv/app"
	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// Running is a command line that runs while the test goes on.
type Running struct {
	Out, Err testfleet.Output
	End      func() int // has it end, and returns its exit code
}

// Begin starts a command line in this process.
func Begin(t *testing.T, args ...string) *Running {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	r := &Running{}
	code := make(chan int, 1)
	p := command.Program{In: strings.NewReader(""), Out: &r.Out, Err: &r.Err, Getenv: Getenv(t), Now: time.Now}
	go func() { code <- app.Run(ctx, p, append([]string{"genv"}, args...)) }()
	r.End = sync.OnceValue(func() int { cancel(); return <-code })
	t.Cleanup(func() { r.End() })
	return r
}

// Eventually waits up to a minute for a condition.
func Eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, time.Minute, 20*time.Millisecond, what)
}

// Main runs the tests of a package. They see nothing of this machine that is configured for
// genv, nor of the environment in which they are run.
func Main(m *testing.M) {
	removePrivate, err := sshd.Private()
	if err != nil {
		fmt.Fprintln(os.Stderr, "The tests see this machine's own accounts and rules of sudo:", err)
	}
	for _, entry := range os.Environ() { // the tests may be run in a shell that is in an environment
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "GENV_") && name != "GENV_SOAK" || strings.HasPrefix(name, "SUDO_") || name == "CUDA_VISIBLE_DEVICES" {
			_ = os.Unsetenv(name)
		}
	}
	passOnIgnoredSignals()
	if err := os.Setenv("GENV_AUDIT_LOG", "off"); err != nil { // or tests that run as root write into this machine's own
		panic(err)
	}
	if err := os.Setenv("GENV_SOCKET", "off"); err != nil { // the runs of enforce would all open the same one
		panic(err)
	}
	if err := os.Setenv("GENV_CONFIG_DIR", "off"); err != nil { // or tests read what this machine's administrator configured
		panic(err)
	}
	root, err := os.MkdirTemp("", "genv-root-") // likewise
	if err == nil {
		err = os.Chmod(root, 0o755)
	}
	if err == nil {
		err = os.Setenv("GENV_ROOT_DIR", root)
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		removePrograms()
		removePrivate()
		_ = os.RemoveAll(root)
		os.Exit(code)
	}))
}

// passOnIgnoredSignals keeps signals that these tests were started to ignore, as nohup and
// sh's & do, from being ignored by the programs that the tests start: a signal that is
// caught is reset in a child.
func passOnIgnoredSignals() {
	caught := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
}

// Result is what a command line printed, and its exit code.
type Result struct {
	Out, Err string
	Code     int
}

// inThisProcess is held by a command line: two at a time are a data race in urfave/cli, whose
// flag for help belongs to all.
var inThisProcess sync.Mutex

// Run runs a command line in this process, with nothing of a terminal. Those of parallel
// tests wait for one another; long ones run the Program.
func Run(t *testing.T, args ...string) Result {
	t.Helper()
	inThisProcess.Lock()
	defer inThisProcess.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var out, errs testfleet.Output
	p := command.Program{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: Getenv(t), Now: time.Now}
	code := app.Run(ctx, p, append([]string{"genv"}, args...))
	return Result{Out: out.String(), Err: errs.String(), Code: code}
}

// Getenv is the environment with a state folder of its own: each run of enforce
// begins without a memory.
func Getenv(t *testing.T) func(string) string {
	dir := t.TempDir()
	return func(name string) string {
		if name == "XDG_STATE_HOME" {
			return dir
		}
		return os.Getenv(name)
	}
}
