// Package genvtest is what the tests of genv's commands share: they run a command line in this
// process, or the program, built once for each test binary.
//
//	func TestMain(m *testing.M) { genvtest.Main(m) }
//
//	r := genvtest.Run(t, "remote", "devices", "-H", "gpu-01").OK(t)
//
// What only one command's tests need is in the _test.go files there.
package genvtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/host"
	"github.com/seed-3119e985/genv/cmd/genv/user"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Commands are those of genv.
func Commands(p command.Program, named string) []*cli.Command {
	return slices.Concat(user.Commands(p), host.Commands(p), fleet.Commands(p, named))
}

// Running is a command line that runs while the test goes on.
type Running struct {
	Out, Err testfleet.ProgramOutput
	End      func() int // has it end, and returns its exit code
}

// Begin starts a command line in this process.
func Begin(t *testing.T, args ...string) *Running {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	r := &Running{}
	code := make(chan int, 1)
	p := command.Program{In: strings.NewReader(""), Out: &r.Out, Err: &r.Err, Getenv: Getenv(t), Now: time.Now}
	go func() { code <- command.Run(ctx, p, Commands, append([]string{"genv"}, args...)) }()
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
	root, err := os.MkdirTemp("", "genv-root-")
	if err == nil {
		err = os.Chmod(root, 0o755)
	}
	// Tests neither read nor write what this machine has, and runs of enforce don't open the same socket.
	for name, value := range map[string]string{
		"GENV_AUDIT_LOG": "off", "GENV_SOCKET": "off", "GENV_CONFIG_DIR": "off", "GENV_ROOT_DIR": root,
		"GENV_DEV_DIR": filepath.Join(root, "dev"),
	} {
		err = errors.Join(err, os.Setenv(name, value))
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

// passOnIgnoredSignals keeps signals that these tests were started to ignore, as nohup and sh's & do, from being
// ignored by the programs that the tests start: a signal that is caught is reset in a child.
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

// OK requires the exit code 0.
func (r Result) OK(t *testing.T) Result {
	t.Helper()
	return r.Exits(t, command.ExitOK)
}

// Exits requires an exit code, and words on stderr.
func (r Result) Exits(t *testing.T, code int, says ...string) Result {
	t.Helper()
	require.Equal(t, code, r.Code, "%s%s", r.Out, r.Err)
	for _, words := range says {
		require.Contains(t, r.Err, words)
	}
	return r
}

// Decode reads the JSON document that was printed.
func Decode[T any](t *testing.T, r Result) (document T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.Out), &document), r.Err)
	return document
}

// Read is the content of a file.
func Read(t testing.TB, path string) string {
	t.Helper()
	return proctest.ReadText(t, path)
}

// Devices are those of a host, as its state files have them.
func Devices(t testing.TB, of interface {
	Devices() ([]snapshot.Device, error)
},
) []snapshot.Device {
	t.Helper()
	return proctest.Try(of.Devices()).OK(t)
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
	var out, errs testfleet.ProgramOutput
	p := command.Program{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: Getenv(t), Now: time.Now}
	code := command.Run(ctx, p, Commands, append([]string{"genv"}, args...))
	return Result{Out: out.String(), Err: errs.String(), Code: code}
}

// Getenv is the environment with a state folder of its own: each run of enforce begins without a memory.
func Getenv(t *testing.T) func(string) string {
	dir := t.TempDir()
	return func(name string) string {
		if name == "XDG_STATE_HOME" {
			return dir
		}
		return os.Getenv(name)
	}
}

// Configure makes a configuration folder with files, which are name and text in turn.
func Configure(t *testing.T, files ...string) string {
	dir := filepath.Join(t.TempDir(), "genv")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for i := 0; i < len(files); i += 2 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600))
	}
	t.Setenv(command.ConfigVariable, dir)
	return dir
}

// Outside is the environment of a process that is in none of genv's. An empty
// one would say nothing: /proc shows that for processes it can't tell of, too.
var Outside = []string{"PATH=/usr/bin:/bin"}

// StartFleet starts simulated hosts, each at an address of its own.
func StartFleet(t *testing.T, hosts ...*inprocess.Server) *inprocess.Fleet {
	for i := range hosts {
		hosts[i].Address = fmt.Sprintf("127.91.7.%d", i+1)
	}
	f := proctest.Try(inprocess.Start(t.TempDir(), 0, hosts...)).OK(t)
	t.Cleanup(f.Close)
	return f
}

// Date is a time as 1.4.3 writes it.
func Date(t *testing.T, text string) snapshot.Date {
	return proctest.Try(snapshot.ParseDate(text)).OK(t)
}

// SocketClient is a client of a controller's socket.
type SocketClient struct {
	*live.Client
	t *testing.T
}

// View is a Viewer of the socket at path.
func View(t *testing.T, path string) *SocketClient {
	v := &SocketClient{live.NewClient(path), t}
	t.Cleanup(v.Close)
	return v
}

// Wait waits for a state for which ok holds.
func (v *SocketClient) Wait(what string, ok func(*live.FleetState) bool) (fleet *live.FleetState) {
	v.t.Helper()
	Eventually(v.t, what, func() bool {
		var err error
		fleet, err = v.Fleet(v.t.Context())
		return err == nil && ok(fleet)
	})
	return fleet
}

// Programs is the folder of genv and the stand-in for nvidia-smi, built once for all
// tests that need them as programs, where every user can run them.
var Programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "genv-test-")
	if err != nil {
		return "", err
	}
	programsDir = dir
	for name, source := range map[string]string{"bin/genv": "cmd/genv", "driver/nvidia-smi": "remote/testfleet/gpus/nvidia-smi"} {
		err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755)
		if err == nil {
			err = testfleet.InstallProgram(source, filepath.Join(dir, name))
		}
		if err != nil {
			return dir, err
		}
	}
	return dir, os.Chmod(dir, 0o755)
})

// Program is the path of genv as a program.
func Program(t testing.TB) string {
	t.Helper()
	return filepath.Join(proctest.Try(Programs()).OK(t), "bin", "genv")
}

var programsDir string // empty while nothing was built

func removePrograms() {
	if programsDir != "" {
		_ = os.RemoveAll(programsDir)
	}
}

// Exec runs a program.
func Exec(t *testing.T, cmd *exec.Cmd) Result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return Result{Out: out.String(), Err: errs.String(), Code: cmd.ProcessState.ExitCode()}
}

// ProgramWith is a genv with another checksum.
func ProgramWith(t *testing.T, more string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "genv")
	require.NoError(t, testfleet.CopyProgram(Program(t), program))
	require.NoError(t, exec.Command("sh", "-c", `printf %s "$1" >>"$0"`, program, more).Run()) // not written by this process
	return program
}

// StartJob starts a job on a host.
func StartJob(t testing.TB, on interface {
	StartJob(testfleet.Job) (*testfleet.Process, error)
}, job testfleet.Job,
) *testfleet.Process {
	t.Helper()
	return proctest.Try(on.StartJob(job)).OK(t)
}

// StartOutside starts a job outside of environments that uses GPUs.
func StartOutside(t testing.TB, on interface {
	StartJob(testfleet.Job) (*testfleet.Process, error)
}, user string, uses ...testfleet.Use,
) *testfleet.Process {
	t.Helper()
	return StartJob(t, on, testfleet.Job{User: user, Env: Outside, Uses: uses})
}

// Activate activates an environment on a host.
func Activate(t testing.TB, on interface {
	Activate(testfleet.Environment) (*testfleet.Env, error)
}, e testfleet.Environment,
) *testfleet.Env {
	t.Helper()
	return proctest.Try(on.Activate(e)).OK(t)
}
