package local_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// makeNode makes a device node, and skips a test that may not.
func makeNode(t *testing.T, path string, major, minor uint32) {
	t.Helper()
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))); err != nil {
		t.Skip(err)
	}
}

// withNode has root look, on a machine with a node of the driver.
func withNode(t *testing.T, machine *local.Collector) (node string) {
	machine.Hardware.Root, machine.Hardware.Dev = true, t.TempDir()
	node = filepath.Join(machine.Hardware.Dev, "nvidiactl")
	makeNode(t, node, hardware.NodeMajor, 255)
	return node
}

// TestAListedProcessWithoutADeviceOfTheDriver is what root sees of processes that the driver lists.
func TestAListedProcessWithoutADeviceOfTheDriver(t *testing.T) {
	m := newMachine(t)
	node := withNode(t, &m.Collector)
	folder := func(pid, name string) string {
		path := filepath.Join(m.Proc.Root, pid, name)
		require.NoError(t, os.MkdirAll(path, 0o755))
		return path
	}
	for _, pid := range []string{"100", "101", "102"} {
		m.process(100+int(pid[2]-'0'), 1001, 5000, "A=1\x00")
		folder(pid, "fd")
		folder(pid, "task/"+pid+"/fd")
	}
	require.NoError(t, os.WriteFile(filepath.Join(m.Proc.Root, "101", "maps"), []byte("7f00-7f01 rw-s 00000000 00:05 0\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(m.Proc.Root, "102", "maps"), []byte("0a00-0a01 rw-s 00000000 00:05 77 /tmp/x\n"), 0o600))
	require.NoError(t, os.Symlink(node, filepath.Join(folder("100", "fd"), "3")))
	require.NoError(t, os.Symlink(node, filepath.Join(folder("102", "map_files"), "a00-a01")))
	m.smi.apps = "GPU-0, 100, 5\nGPU-0, 101, 5\nGPU-1, 102, 5\n"

	missing := func(processes []snapshot.Process) (list []bool) {
		for i := range processes {
			list = append(list, processes[i].NodeMissing)
		}
		return list
	}
	require.Equal(t, []bool{false, true, false}, missing(m.snapshot().Processes))
	for _, holder := range []string{"300", "301"} { // not listed
		require.NoError(t, os.Symlink(node, filepath.Join(folder(holder, "fd"), "3")))
	}
	require.NoError(t, os.Chown(filepath.Join(m.Proc.Root, "301"), 1001, 0))
	require.Equal(t, snapshot.PID(301), m.snapshot().Processes[1].NodeHolder, "only one of the same user is named")
	require.NoError(t, os.Remove(filepath.Join(folder("100", "fd"), "3")))
	require.Equal(t, []bool{false, true, false}, missing(m.snapshot().Processes), "once seen, it holds")
	processes, _, err := m.Processes(t.Context())
	require.NoError(t, err)
	require.Equal(t, []bool{false, true, false}, missing(processes), "also right before a signal")

	require.NoError(t, os.RemoveAll(filepath.Join(m.Proc.Root, "101", "maps")))
	require.Equal(t, []bool{false, false, false}, missing(m.snapshot().Processes), "unreadable is no excuse")
	m.Hardware.Dev = t.TempDir()
	require.Equal(t, []bool{false, false, false}, missing(m.snapshot().Processes), "no nodes, no proof")
}

// TestAnAccountWithManyFiles: its processes share the limits of a look, which others keep. What isn't looked at isn't
// spared for that, and one with few files is always looked at.
func TestAnAccountWithManyFiles(t *testing.T) {
	m := newMachine(t)
	node := withNode(t, &m.Collector)
	files, open := t.TempDir(), t.TempDir()
	for i := range 1000 {
		require.NoError(t, os.Symlink("none", filepath.Join(files, strconv.Itoa(i))))
	}
	require.NoError(t, os.Symlink(node, filepath.Join(open, "3")))
	// process has many files in its threads, and the node in its only mapping.
	process := func(pid, uid, threads int) {
		m.process(pid, uid, 5000+pid, "A=1\x00")
		m.smi.apps += fmt.Sprintf("GPU-0, %d, 5\n", pid)
		m.write(fmt.Sprintf("%d/maps", pid), "0a00-0a01 rw-s 00000000 00:05 77 /dev/x\n")
		m.write(fmt.Sprintf("%d/map_files/none", pid), "")
		require.NoError(t, os.Symlink(node, filepath.Join(m.Proc.Root, strconv.Itoa(pid), "map_files/a00-a01")))
		require.NoError(t, os.Symlink(files, filepath.Join(m.Proc.Root, strconv.Itoa(pid), "fd")))
		for tid := range threads {
			task := filepath.Join(m.Proc.Root, strconv.Itoa(pid), "task", strconv.Itoa(tid))
			require.NoError(t, os.MkdirAll(task, 0o755))
			require.NoError(t, os.Symlink(files, filepath.Join(task, "fd")))
		}
	}
	for pid := 100; pid < 102; pid++ {
		process(pid, 1001, 35) // two are too many for one look
	}
	process(200, 1002, 3)
	process(201, 1003, 70) // alone it is too many: it can't be read
	process(99, 1001, 10)  // without a node
	process(98, 1001, 0)
	for _, pid := range []string{"98", "99"} {
		require.NoError(t, os.Remove(filepath.Join(m.Proc.Root, pid, "map_files/a00-a01")))
	}
	require.NoError(t, os.Remove(filepath.Join(m.Proc.Root, "98/fd")))
	require.NoError(t, os.MkdirAll(filepath.Join(m.Proc.Root, "98/fd"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(m.Proc.Root, "98/task"), 0o755))
	for range 60 {
		found := false
		for _, p := range m.snapshot().Processes {
			switch p.PID {
			case 98:
				require.True(t, p.NodeMissing, "a few files are looked at first")
			case 99:
				found = p.NodeMissing
			default:
				require.False(t, p.NodeMissing, "process %d", p.PID)
			}
		}
		if found {
			return
		}
	}
	require.Fail(t, "a process was never looked at")
}

// TestDevicesInDoubt: what computes without a visible process is never free.
func TestDevicesInDoubt(t *testing.T) {
	list := func(utilization int) string {
		return fmt.Sprintf("0, GPU-0, 81559, 10, %d, 31, 70.12, H100\n1, GPU-1, 81559, 10, 0, 31, 70.12, H100\n", utilization)
	}
	computes := func(utilization int) func(*machine) {
		return func(m *machine) { m.smi.devices = list(utilization) }
	}
	uses := func(utilization int) func(*machine) {
		return func(m *machine) {
			m.smi.devices, m.smi.apps = list(utilization), "GPU-0, 100, 5\n"
			m.process(100, 1001, 5000, "A=1\x00")
		}
	}
	nothing := func(*machine) {}
	for name, tt := range map[string]struct {
		ttl   time.Duration
		looks []func(m *machine)
		doubt []bool
	}{
		"hidden":                     {0, []func(m *machine){func(m *machine) { m.smi.apps = "GPU-0, 100, 5\n" }}, []bool{true}},
		"ended after it was seen":    {0, []func(m *machine){uses(0), func(m *machine) { m.remove(100) }}, []bool{false, false}},
		"computes without a process": {0, []func(m *machine){computes(6), nothing, computes(5), computes(90)}, []bool{false, true, false, false}},
		"one measurement":            {time.Minute, []func(m *machine){computes(90), nothing}, []bool{false, false}},
		"computes for a process":     {0, []func(m *machine){uses(90), nothing}, []bool{false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.DeviceListTTL = tt.ttl
			for i, change := range tt.looks {
				change(m)
				devices := m.snapshot().Devices
				require.Equal(t, tt.doubt[i], devices[0].ProcessesUnknown, "look %d", i+1)
				require.False(t, devices[1].ProcessesUnknown)
			}
		})
	}
}

// A subordinate uid is its account's. As long as that is unknown, what a process claims is, too.
func TestAccountsOfProcesses(t *testing.T) {
	etc, bin := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"passwd": "alice:x:1001:1001::/:/bin/sh\nerin:x:100500:1::/:/bin/sh\n", "subuid": "alice:100000:65536\nbob:165536:10\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644))
	}
	require.NoError(t, proctest.WriteProgram(filepath.Join(bin, "getent"), []byte("#!/bin/sh\ncase \"$*\" in *165540*) exec sleep 60;; esac; exit 2\n")))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	m := newMachine(t)
	m.Proc.Accounts = &proc.Accounts{Etc: etc}
	m.process(50, 1001, 5, "A=1\x00")
	m.files.Environments = []snapshot.Environment{registered("7", 1001, 50), registered("8", 165540, 2)}
	uids := []int{1001, 100001, 100500, 70000, 165540}
	start := func(i int) {
		m.process(100+i, uids[i], 10, "GENV_ENVIRONMENT_ID=7\x00")
		m.write(fmt.Sprintf("%d/stat", 100+i), statOf(100+i, 50, "python3", "S", 10, 1010))
		m.smi.apps += fmt.Sprintf("GPU-0, %d, 10\n", 100+i)
	}
	for i := range 4 {
		start(i)
	}
	require.Eventually(t, func() bool { // a busy machine may take longer to ask
		return !slices.ContainsFunc(m.snapshot().Processes, func(p snapshot.Process) bool { return p.UID == nil })
	}, time.Minute, 10*time.Millisecond)
	start(4)
	began := time.Now()
	s := m.snapshot()
	require.Less(t, time.Since(began), 1900*time.Millisecond, "a directory that hangs is asked for 2 s")
	for i, want := range []snapshot.UID{1001, 1001, 100500, 70000} {
		require.Equal(t, want, *s.Processes[i].UID, uids[i])
		require.Equal(t, snapshot.EnvID("7"), s.Processes[i].EID)
	}
	require.ErrorIs(t, proctest.Try(m.Proc.Accounts.Wait(t.Context(), 165540)).Err, proc.ErrAccountUnknown)
	p := s.Processes[4]
	require.Nil(t, p.UID)
	require.True(t, p.EnvUnknown && !p.EnvOverwritten && p.EID == "", "it is in no environment of anybody")
	require.Contains(t, strings.Join(s.Warnings, "\n"), "the owner of process 104: uid 165540: the account of a subordinate uid is unknown")
}

// TestTypesOfProcesses come with the snapshot where a display is active, and nowhere else is asked for them.
func TestTypesOfProcesses(t *testing.T) {
	const details = "<nvidia_smi_log><gpu><processes><process_info><pid>100</pid><type>C+G</type></process_info></processes></gpu></nvidia_smi_log>"
	for name, tt := range map[string]struct {
		displays [2]string // of GPU 0 and GPU 1
		details  string
		asked    []string
		types    []snapshot.ProcessType // of 100 on GPU 0, and of 101 on GPU 1
	}{
		"a display":     {[2]string{", Enabled", ", Disabled"}, details, []string{"devices", "details"}, []snapshot.ProcessType{"C+G", "C"}},
		"no answer":     {[2]string{", Enabled", ", Disabled"}, "", []string{"devices", "details"}, []snapshot.ProcessType{"?", ""}},
		"none at all":   {asked: []string{"devices", "details"}, types: []snapshot.ProcessType{"?", "?"}},
		"no display":    {[2]string{", Disabled", ", Disabled"}, "", []string{"devices"}, []snapshot.ProcessType{"", ""}},
		"not asked for": {types: []snapshot.ProcessType{"", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.process(100, 1000, 7, "HOME=/\x00")
			m.process(101, 1000, 7, "HOME=/\x00")
			m.smi.apps, m.smi.details = "GPU-0, 100, 11\nGPU-1, 101, 3\n", tt.details
			if tt.displays[0] != "" {
				m.smi.modes, m.smi.devices = []string{"display_active"}, ""
				for i, line := range slices.Collect(strings.Lines(twoDevices)) {
					m.smi.devices += strings.TrimSuffix(line, "\n") + tt.displays[i] + "\n"
				}
			}
			if tt.asked != nil {
				m.Types = new(nvidiasmi.Types)
			}
			s := m.snapshot()
			require.Equal(t, append([]string{"apps", "devices", "read"}, tt.asked...), m.take())
			require.Equal(t, tt.types, []snapshot.ProcessType{s.Processes[0].Usage[0].Type, s.Processes[1].Usage[0].Type})
		})
	}
}

// TestShortProcessesOnADesktop: of an account without a desktop, those compute that have no node of /dev/dri open.
func TestShortProcessesOnADesktop(t *testing.T) {
	node := filepath.Join(t.TempDir(), "card0")
	makeNode(t, node, 226, 0)
	m, now := newMachine(t), time.Now()
	m.Types, m.Now = new(nvidiasmi.Types), func() time.Time { return now }
	m.smi.modes, m.smi.devices = []string{"display_active"}, "0, GPU-0, 81559, 10, 0, 31, 70.12, H100, Enabled\n"
	m.smi.details, m.smi.detailsAge = "<nvidia_smi_log><pid>90</pid><type>G</type></nvidia_smi_log>", 10*time.Second
	m.process(90, 1003, 5, "A=1\x00")
	next := 100
	look := func() (types []snapshot.ProcessType) {
		m.smi.apps, now = "", now.Add(30*time.Second)
		for uid := 1001; uid <= 1003; uid++ {
			next++
			m.process(next, uid, 5000+next, "A=1\x00")
			m.smi.apps += fmt.Sprintf("GPU-0, %d, 11\n", next)
			m.write(fmt.Sprintf("%d/maps", next), "7f00-7f01 rw-s 00000000 00:05 0\n") // without a file
			fd := filepath.Join(m.Proc.Root, strconv.Itoa(next), "fd")
			require.NoError(t, errors.Join(os.MkdirAll(fd, 0o755), os.MkdirAll(filepath.Join(fd, "../task"), 0o755)))
			if uid == 1002 {
				require.NoError(t, os.Symlink(node, filepath.Join(fd, "3")))
			}
		}
		for _, p := range m.snapshot().Processes {
			types = append(types, p.Usage[0].Type)
		}
		return types
	}
	for range 3 {
		require.Equal(t, []snapshot.ProcessType{"?", "?", "?"}, look(), "nvidia-smi is waited for")
	}
	require.Equal(t, []snapshot.ProcessType{"C", "?", "?"}, look(), "the second has a node, and the third a desktop")
	m.write("90/status", "Name:\tXorg\n")
	require.Equal(t, []snapshot.ProcessType{"?", "?", "?"}, look(), "any may have the desktop")
}
