package disk_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/statetest"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

var at, gpus, exclusive = statetest.At, statetest.GPUs, statetest.Exclusive

// roles are what a child process of a test may be. Its arguments follow.
var roles = map[string]func(args []string) error{
	"first-use": firstUse,
	"die-at":    dieAt,
	"hold":      hold,
	"worker":    worker,
	"legacy":    legacy,
	"owners":    printOwners,
	"look":      look,

	"move-and-die":  moveAndDie,
	"write-as-user": writeAsUser,
	"fail-to-write": failToWrite,
}

const roleVariable = "GENV_STATE_TEST_ROLE"

func TestMain(m *testing.M) {
	proctest.RunStall()
	if len(os.Args) > 1 && os.Args[1] == "read" {
		_ = proc.ServeReader(os.Stdin, os.Stdout)
		return
	}
	role, isChild := os.LookupEnv(roleVariable)
	if !isChild {
		goleak.VerifyTestMain(m)
		return
	}
	if err := roles[role](os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}

// child is this test binary in a role. /proc/self/exe can be run by a user who may not enter the folder where the
// binary lies. Under the race detector it would wait a second before it ends.
func child(ctx context.Context, role string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// asUser lets a child run as a user, who needs no account for it.
func asUser(cmd *exec.Cmd, uid int) *exec.Cmd {
	if uid != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	return cmd
}

// sharedDir is a place for a state folder that every user can reach.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Chmod(dir, 0o777))
	return filepath.Join(dir, "genv")
}

// fakeSystem is a Machine of invented processes. Who is not in it is alive, and nothing is known of them but that.
type fakeSystem struct {
	boot      string
	processes map[snapshot.PID]system.ProcessStatus
	kernels   map[string]system.Liveness // by their id, no matter whose
	onRead    func()                     // called when processes or kernels are looked for

	namespaces system.Namespaces // those of here
	uptime     snapshot.StartTime
	running    []system.RunningProcess
	hidden     bool // those of others
	walks      int  // how often all processes were listed
}

func (m *fakeSystem) BootID() string { return m.boot }

func (m *fakeSystem) Process(pid snapshot.PID) system.ProcessStatus {
	if p, ok := m.processes[pid]; ok {
		return p
	}
	return system.ProcessStatus{Liveness: system.Alive}
}

// here are the namespaces of a fakeSystem.
var here = system.Namespaces{PID: 4026531836, User: 4026531837}

func (m *fakeSystem) Namespaces() system.Namespaces {
	if m.namespaces == (system.Namespaces{}) {
		return here
	}
	return m.namespaces
}

func (m *fakeSystem) Uptime() snapshot.StartTime { return m.uptime }

func (m *fakeSystem) Running(wanted func(snapshot.UID) bool) ([]system.RunningProcess, bool) {
	m.walks++
	m.read()
	return slices.DeleteFunc(slices.Clone(m.running), func(r system.RunningProcess) bool { return !wanted(r.UID) }), !m.hidden
}

func (m *fakeSystem) Kernels(kernels []system.Kernel) map[system.Kernel]system.Liveness {
	m.read()
	if m.kernels == nil { // as where /proc can't be read
		return nil
	}
	lives := map[system.Kernel]system.Liveness{}
	for _, k := range kernels {
		lives[k] = m.kernels[k.ID]
	}
	return lives
}

func (m *fakeSystem) read() {
	if m.onRead != nil {
		m.onRead()
	}
}

// everyoneLives is a Store on a machine where every process is alive.
func everyoneLives(dir string) *disk.Store {
	return disk.New(dir, disk.Config{System: &fakeSystem{}})
}

type indices = []snapshot.DeviceIndex

func register(t *testing.T, store *disk.Store, n int) {
	t.Helper()
	proctest.Try(store.RegisterDevices(t.Context(), gpus(n))).OK(t)
}

func activate(t *testing.T, store *disk.Store, a state.Activation) {
	t.Helper()
	a.At = at("12:00:00")
	require.NoError(t, store.Update(t.Context(), func(f *state.Files) error { return f.Activate(a) }))
}

// livingOf is a living process of a user.
func livingOf(uid snapshot.UID) system.ProcessStatus {
	return system.ProcessStatus{Liveness: system.Alive, Owner: &uid}
}

func dead(pids ...snapshot.PID) map[snapshot.PID]system.ProcessStatus {
	gone := map[snapshot.PID]system.ProcessStatus{}
	for _, pid := range pids {
		gone[pid] = system.ProcessStatus{Liveness: system.Gone}
	}
	return gone
}

// requireRecorded requires files to be as 1.4.3 wrote them.
func requireRecorded(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		require.Equal(t, proctest.ReadText(t, filepath.Join(recorded, name)), proctest.ReadText(t, filepath.Join(dir, name)))
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

// sleeping is a real process of this user.
type sleeping struct {
	pid snapshot.PID
	end func() // and is gone
}

// sleeper starts one with an environ of its own.
func sleeper(t *testing.T, environ []string) sleeping {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "1000000")
	cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, environ...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	require.NoError(t, cmd.Start())
	end := sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its status is no news
	})
	t.Cleanup(end)
	return sleeping{snapshot.PID(cmd.Process.Pid), end}
}

// read returns what a store reads.
func read(t *testing.T, s interface {
	Read(ctx context.Context) (state.Files, error)
},
) *state.Files {
	t.Helper()
	files := proctest.Try(s.Read(t.Context())).OK(t)
	return &files
}
