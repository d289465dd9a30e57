package local_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	snapshotlocal "github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

const (
	roleVariable = "GENV_TEST_ROLE"
	envVariable  = "GENV_ENVIRONMENT_ID"
	promptEnd    = "GORACE=atexit_sleep_ms=0" // with the race detector a program waits a second otherwise
)

// roles are what the test binary does when a test starts it again. All of them
// answer each line of stdin with that line.
var roles = map[string]func(){
	"gentle":   echo,
	"stubborn": func() { signal.Ignore(unix.SIGTERM); echo() },
	"parent":   parent,
	"init":     initOfItsOwn,
	"turncoat": turncoat,
	"titled":   func() { titled(); echo() },
	"reuse":    reusePIDs,
	"holder":   holdTerminal,
}

func TestMain(m *testing.M) {
	proctest.RunStall()
	if len(os.Args) == 2 && os.Args[1] == "read" {
		_ = proc.ServeReader(os.Stdin, os.Stdout)
		return
	}
	if role, ok := roles[os.Getenv(roleVariable)]; ok {
		role()
		return
	}
	refusePidfds(os.Getenv(noPidfdVariable))
	unix.Umask(0o022) // other users run what tests write
	goleak.VerifyTestMain(m)
}

func echo() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(lines.Text())
	}
}

// parent starts the program that $GENV_TEST_CHILD names, tells its PID, and ends when it does.
func parent() {
	cmd := exec.Command(os.Getenv("GENV_TEST_CHILD"))
	cmd.Env = append(os.Environ(), roleVariable+"=gentle")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: person, Gid: person}}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(cmd.Process.Pid)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = in.Close()
	_ = cmd.Wait()
}

// turncoat becomes another program, in another environment, at its first line.
func turncoat() {
	_, _ = os.Stdin.Read(make([]byte, 1)) // no more: what follows is for the other program
	exe, err := os.Executable()
	if err == nil {
		err = syscall.Exec(exe, []string{exe}, []string{roleVariable + "=gentle", envVariable + "=other"})
	}
	fmt.Println(err)
}

// titled writes a title over its environment, with a "=" in it.
func titled() {
	if err := proctest.OverwriteEnviron("train.py --lr=0.1"); err != nil {
		fmt.Println(err)
	}
}

const person = 54321 // a uid that is not a system account

// child is a real process.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	ended bool
}

type option func(*exec.Cmd)

func in(eid string) option {
	return func(c *exec.Cmd) { c.Env = append(c.Env, envVariable+"="+eid) }
}

func as(uid uint32) option {
	return func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
}

func variable(text string) option { return func(c *exec.Cmd) { c.Env = append(c.Env, text) } }

// called makes a process go by a name, its program's file too.
func called(t *testing.T, name string) option {
	path := program(t, name)
	return func(c *exec.Cmd) { c.Path = path }
}

// program is the test binary under another name, where all users may start it.
func program(t *testing.T, name string) string {
	path := filepath.Join(proctest.PublicDir(t, 0o755), name)
	require.NoError(t, proctest.WriteProgram(path, proctest.ReadFile(t, "/proc/self/exe")))
	return path
}

func start(t *testing.T, role string, options ...option) *child {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleVariable + "=" + role, promptEnd}
	for _, set := range options {
		set(cmd)
	}
	return started(t, cmd)
}

// started starts a command that speaks through its pipes, and ends it with the test.
func started(t *testing.T, cmd *exec.Cmd) *child {
	in := proctest.Try(cmd.StdinPipe()).OK(t)
	out := proctest.Try(cmd.StdoutPipe()).OK(t)
	require.NoError(t, cmd.Start())
	c := &child{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		if !c.ended {
			_ = cmd.Process.Kill()
			c.wait()
		}
	})
	return c
}

// ready starts a process and waits until it answers.
func ready(t *testing.T, role string, options ...option) *child {
	c := start(t, role, options...)
	c.answers()
	return c
}

// answers requires that the process still does its work: whatever signal was sent before would have reached it by now.
func (c *child) answers() {
	for _, word := range []string{"once", "twice"} {
		proctest.Try(fmt.Fprintln(c.in, word)).OK(c.t)
		line := proctest.Try(c.out.ReadString('\n')).OK(c.t)
		require.Equal(c.t, word, strings.TrimSpace(line))
	}
}

func (c *child) wait() syscall.WaitStatus {
	_ = c.cmd.Wait() // its state says more
	c.ended = true
	return c.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

func (c *child) endedBy(sig syscall.Signal) {
	status := c.wait()
	require.True(c.t, status.Signaled(), "it ended by itself")
	require.Equal(c.t, sig, status.Signal())
}

func (c *child) pid() snapshot.PID { return snapshot.PID(c.cmd.Process.Pid) }

func (c *child) stat() proc.Stat {
	stat := proctest.Try(proc.FS{}.Stat(c.pid())).OK(c.t)
	return stat
}

// judged is the process as a snapshot would show it, on the given devices.
func (c *child) judged(eid snapshot.EnvID, devices ...snapshot.DeviceIndex) snapshot.Process {
	return snapshot.Process{PID: c.pid(), EID: eid, Start: c.stat().Start, Usage: usage(devices...)}
}

func usage(devices ...snapshot.DeviceIndex) []snapshot.DeviceUsage {
	var all []snapshot.DeviceUsage
	for _, d := range devices {
		all = append(all, snapshot.DeviceUsage{Index: d, Memory: snapshot.MiB(1)})
	}
	return all
}

// machine answers with what a test set up.
type machine struct {
	apps  []snapshot.Process
	envs  []snapshot.Environment
	state []snapshot.Device
	err   error

	stateErr error
	gpus     map[snapshot.DeviceIndex]snapshot.GPUUUID
	asked    int
	then     func() // called at each question, before the answer
}

func (m *machine) Processes(context.Context) ([]snapshot.Process, []string, error) {
	m.asked++
	if m.then != nil {
		m.then()
	}
	return m.apps, nil, m.err
}

func (m *machine) GPUs(context.Context) (map[snapshot.DeviceIndex]snapshot.GPUUUID, error) {
	return m.gpus, m.err
}

func (m *machine) Environments(context.Context) ([]snapshot.Environment, []string, error) {
	return m.envs, nil, m.err
}

func (m *machine) Devices(context.Context) ([]snapshot.Device, []string, error) {
	return m.state, nil, m.stateErr
}

// stateFiles holds its content in memory.
type stateFiles struct {
	content state.Files
	err     error
	full    error // of writing
}

func (b *stateFiles) Update(_ context.Context, change func(*state.Files) error) error {
	if b.err != nil {
		return b.err
	}
	return cmp.Or(change(&b.content), b.full)
}

// scene is an Executor and its fakes.
type scene struct {
	machine       *machine
	stateFiles    *stateFiles
	lines         []string
	x             *local.Executor
	order.Options // of its orders
}

func newScene(o local.ExecutorOptions, apps ...snapshot.Process) *scene {
	s := &scene{machine: &machine{apps: apps}, stateFiles: &stateFiles{}}
	s.x = local.New(s.machine, s.stateFiles, o).As(ending.Authority{}, s.note, ignore)
	return s
}

// sceneOf is a process in environment 7 that was judged to use device 0, and an Executor that sees it.
func sceneOf(t *testing.T, role string, o local.ExecutorOptions) (*child, snapshot.Process, *scene) {
	c := ready(t, role, in("7"))
	judged := c.judged("7", 0)
	return c, judged, newScene(o, judged)
}

// killing has SIGKILL follow, and some daemons be ended.
func (s *scene) killing(unprotected ...string) *scene {
	s.Kill, s.Unprotected = true, unprotected
	return s
}

func (s *scene) note(line string) { s.lines = append(s.lines, line) }
func ignore(string)               {}

// terminate carries out an order of terminations.
func (s *scene) terminate(t *testing.T, processes ...snapshot.Process) []order.Outcome {
	return s.terminateIn(t, context.Background(), processes...)
}

func (s *scene) terminateIn(t *testing.T, ctx context.Context, processes ...snapshot.Process) []order.Outcome { //nolint:revive // t first, as everywhere in tests
	o := order.Order{Options: s.Options}
	for _, p := range processes {
		o.Terminate = append(o.Terminate, order.Termination{Process: p})
	}
	outcomes := s.x.Execute(ctx, o)
	require.Len(t, outcomes, len(processes))
	for i, p := range processes {
		require.Equal(t, p.PID, outcomes[i].PID)
		require.Equal(t, p.EID, outcomes[i].EID)
	}
	return outcomes
}

const oneGrace = time.Minute // more than any of these processes needs to end

var errDriver = errors.New("the driver is ill")

// The real parts fit.
var (
	_ local.Inspector  = (*snapshotlocal.Collector)(nil)
	_ local.StateFiles = (*disk.Store)(nil)
)
