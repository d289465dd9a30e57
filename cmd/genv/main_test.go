package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/cmd/genv/app"
	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

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

// result is what a command line printed, and its exit code.
type result struct {
	out, err string
	code     int
}

// inThisProcess is held by a command line: two at a time are a data race in urfave/cli, whose
// flag for help belongs to all.
var inThisProcess sync.Mutex

// genv runs a command line in this process, with nothing of a terminal. Those of parallel
// tests wait for one another; see apart for long ones.
func genv(t *testing.T, args ...string) result {
	t.Helper()
	inThisProcess.Lock()
	defer inThisProcess.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var out, errs stream
	p := command.Program{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: ownStateHome(t), Now: time.Now}
	code := app.Run(ctx, p, append([]string{"genv"}, args...))
	return result{out: out.String(), err: errs.String(), code: code}
}

// stream is an output to which several goroutines write, as they may to a file.
type stream struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *stream) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// ownStateHome is the environment with a state folder of its own: each run of enforce
// begins without a memory.
func ownStateHome(t *testing.T) func(string) string {
	dir := t.TempDir()
	return func(name string) string {
		if name == "XDG_STATE_HOME" {
			return dir
		}
		return os.Getenv(name)
	}
}
