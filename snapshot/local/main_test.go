package local_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// titleVariable makes the test binary a process that writes this title over its environment.
const titleVariable = "GENV_TEST_TITLE"

func TestMain(m *testing.M) {
	proctest.RunStall()
	switch {
	case slices.Equal(os.Args[1:], []string{"read"}):
		if err := proc.ServeReader(os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	case slices.Equal(os.Args[1:], []string{"read slowly"}):
		_ = proc.ServeReader(os.Stdin, slowly{})
		return
	case os.Args[0] == "files":
		limit := unix.Rlimit{}
		_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
		for range 100_000 {
			_, _ = unix.Dup(0)
		}
		fmt.Println()
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	case os.Args[0] == "become": // the owner of its file, who has set the set-uid bit
		fmt.Println(unix.Setresuid(unix.Geteuid(), unix.Geteuid(), unix.Geteuid()))
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	if title, ok := os.LookupEnv(titleVariable); ok {
		if err := proctest.OverwriteEnviron(title); err != nil {
			fmt.Println(err)
		}
		fmt.Println("done")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the test is done with it
		return
	}
	goleak.VerifyTestMain(m)
}

// slowly is a stdout that takes its time.
type slowly struct{}

const slowlyTakes = 100 * time.Millisecond

func (slowly) Write(data []byte) (int, error) {
	time.Sleep(slowlyTakes)
	return os.Stdout.Write(data)
}

// machine is a machine with fake sources.
type machine struct {
	local.Collector
	t     testing.TB
	smi   *smi
	files *fakeFiles
	asked []string // of its sources, in order
}

// smi is what nvidia-smi prints.
type smi struct {
	m                            *machine
	apps, devices, list, details string
	modes                        []string // in devices
	err                          error
	detailsAge                   time.Duration // of the answer
}

// fakeFiles are state files in memory.
type fakeFiles struct {
	m *machine
	state.Files
	err  error
	then func() // called at each reading, before the answer
}

const (
	bootID     = "6f1f5d0b-8f7c-4d83-9d0e-3a4f1c0c2b11"
	twoDevices = "0, GPU-0, 81559, 10, 0, 31, 70.12, H100\n1, GPU-1, 81559, 20, 50, [N/A], [N/A], H100\n"
	migList    = "GPU 0: H100 (UUID: GPU-0)\n  MIG 1g.10gb Device 0: (UUID: MIG-a)\n  MIG 1g.10gb Device 1: (UUID: MIG-b)\n" +
		"GPU 1: H100 (UUID: GPU-1)\n"
)

func newMachine(t testing.TB) *machine {
	t.Helper()
	m := &machine{t: t}
	m.smi = &smi{m: m, devices: twoDevices, list: migList}
	m.files = &fakeFiles{m: m}
	m.files.Devices = []snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(81559)}, {Index: 1, TotalMemory: snapshot.MiB(81559)}}
	m.Now = time.Now
	m.SMI, m.StateFiles, m.Proc = m.smi, m.files, proc.FS{Root: t.TempDir()}
	m.write("sys/kernel/random/boot_id", bootID+"\n")
	m.process(1, 0, 2, "HOME=/\x00")
	return m
}

// machineWith is a machine on which process 100 of uid 1001 uses GPU 0.
func machineWith(t testing.TB, environ string) *machine {
	m := newMachine(t)
	m.smi.apps = "GPU-0, 100, 5\n"
	m.process(100, 1001, 5000, environ)
	return m
}

// process adds a process to /proc. The address of its environ follows from its start.
func (m *machine) process(pid, uid, start int, environ string) {
	m.write(fmt.Sprintf("%d/stat", pid), stat(pid, "python3", "S", start, start+1000))
	m.write(fmt.Sprintf("%d/status", pid), fmt.Sprintf("Name:\tpython3\nUid:\t%d\t%d\t%d\t%d\n", uid, uid, uid, uid))
	m.write(fmt.Sprintf("%d/environ", pid), environ)
}

func stat(pid int, name, state string, start, address int) string {
	parent := min(pid-1, 1)
	return statOf(pid, parent, name, state, start, address)
}

// statOf is stat with a parent.
func statOf(pid, parent int, name, state string, start, address int) string {
	return fmt.Sprintf("%d (%s) %s %d 5 5 0 -1 0 1 0 0 0 5 6 0 0 20 0 1 0 %d 1 1 1 1 1 0 0 0 0 0 1 1 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 %d 9 0\n",
		pid, name, state, parent, start, address)
}

func (m *machine) write(name, content string) {
	m.t.Helper()
	path := filepath.Join(m.Proc.Root, name)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(m.t, os.WriteFile(path, []byte(content), 0o644))
}

func (m *machine) remove(pid int) {
	m.t.Helper()
	require.NoError(m.t, os.RemoveAll(filepath.Join(m.Proc.Root, strconv.Itoa(pid))))
}

func (m *machine) snapshot() *snapshot.Snapshot {
	m.t.Helper()
	s := proctest.Try(m.Snapshot(m.t.Context())).OK(m.t)
	return s
}

// take is what was asked since the last time.
func (m *machine) take() []string {
	asked := m.asked
	m.asked = nil
	return asked
}

func (s *smi) ask(what string) error {
	s.m.asked = append(s.m.asked, what)
	return s.err
}

func answer(stdout string) nvidiasmi.RunResult { return nvidiasmi.RunResult{Stdout: []byte(stdout)} }

func (s *smi) Apps(context.Context, time.Duration) (nvidiasmi.Usage, error) {
	if err := s.ask("apps"); err != nil {
		return nvidiasmi.Usage{}, err
	}
	return nvidiasmi.ParseApps(answer(s.apps))
}

func (s *smi) Devices(context.Context, time.Duration) (nvidiasmi.Listing, error) {
	if err := s.ask("devices"); err != nil {
		return nvidiasmi.Listing{}, err
	}
	listing, err := nvidiasmi.ParseDevices(answer(s.devices), s.modes...)
	listing.Time.Began = s.m.Now()
	return listing, err
}

func (s *smi) List(context.Context, time.Duration) ([]snapshot.Device, error) {
	if err := s.ask("list"); err != nil {
		return nil, err
	}
	return nvidiasmi.ParseList(answer(s.list))
}

func (s *smi) Details(context.Context, time.Duration) (nvidiasmi.Details, error) {
	if err := s.ask("details"); err != nil {
		return nvidiasmi.Details{}, err
	}
	details, err := nvidiasmi.ParseDetails(answer(s.details))
	details.Time.Began = s.m.Now().Add(-s.detailsAge)
	return details, err
}

func (b *fakeFiles) Read(context.Context) (state.Files, error) {
	b.m.asked = append(b.m.asked, "read")
	if b.then != nil {
		b.then()
	}
	if b.err == nil && b.Devices == nil {
		return b.Files, state.ErrNoDevices
	}
	return b.Files, b.err
}

func (b *fakeFiles) RegisterDevices(_ context.Context, found []snapshot.Device) (state.Files, error) {
	b.m.asked = append(b.m.asked, "discover")
	if b.err != nil {
		return state.Files{}, b.err
	}
	b.MergeDevices(found)
	merged := b.Files
	b.Warnings = nil // they are this call's
	return merged, nil
}

func (b *fakeFiles) Remember(_ context.Context, answers []snapshot.Answer) error {
	b.Files.Remember(answers)
	return b.err
}

func (*fakeFiles) Folder() (string, *bool, error) { return "", nil, nil }

// listed is a fake nvidia-smi that lists processes on one device.
type listed struct{ pids []snapshot.PID }

func (l listed) Apps(context.Context, time.Duration) (nvidiasmi.Usage, error) {
	var u nvidiasmi.Usage
	for _, pid := range l.pids {
		u.Apps = append(u.Apps, nvidiasmi.App{GPU: "GPU-0", PID: pid, Memory: snapshot.MiB(100)})
	}
	return u, nil
}

func (l listed) Devices(context.Context, time.Duration) (nvidiasmi.Listing, error) {
	return nvidiasmi.Listing{GPUs: []nvidiasmi.GPU{{Device: snapshot.Device{UUID: "GPU-0", TotalMemory: snapshot.MiB(81559)}}}}, nil
}

func (l listed) List(context.Context, time.Duration) ([]snapshot.Device, error) {
	return nil, nvidiasmi.ErrGarbled // it has no MIG instances to ask for
}

func (l listed) Details(context.Context, time.Duration) (nvidiasmi.Details, error) {
	return nvidiasmi.Details{}, nvidiasmi.ErrGarbled
}
