package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
)

// TestAListedProcessWithoutADeviceOfTheDriver is what root sees of processes that the driver lists.
func TestAListedProcessWithoutADeviceOfTheDriver(t *testing.T) {
	dev := t.TempDir()
	node := filepath.Join(dev, "nvidiactl")
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(hardware.NodeMajor, 255))); err != nil {
		t.Skip(err)
	}
	m := newMachine(t)
	m.Hardware.Root, m.Hardware.Dev = true, dev
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
	m.Hardware.Root, m.Hardware.Dev = true, t.TempDir()
	node := filepath.Join(m.Hardware.Dev, "nvidiactl")
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(hardware.NodeMajor, 255))); err != nil {
		t.Skip(err)
	}
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
	for name, tt := range map[string]struct {
		ttl   time.Duration
		looks []func(m *machine)
		doubt []bool
	}{
		"hidden": {0, []func(m *machine){func(m *machine) { m.smi.apps = "GPU-0, 100, 5\n" }}, []bool{true}},
		"ended after it was seen": {0, []func(m *machine){
			func(m *machine) {
				m.smi.devices, m.smi.apps = list(0), "GPU-0, 100, 5\n"
				m.process(100, 1001, 5000, "A=1\x00")
			},
			func(m *machine) { m.remove(100) },
		}, []bool{false, false}},
		"computes without a process": {0, []func(m *machine){
			func(m *machine) { m.smi.devices = list(6) }, func(*machine) {}, func(m *machine) { m.smi.devices = list(5) }, func(m *machine) { m.smi.devices = list(90) },
		}, []bool{false, true, false, false}},
		"one measurement": {time.Minute, []func(m *machine){func(m *machine) { m.smi.devices = list(90) }, func(*machine) {}}, []bool{false, false}},
		"computes for a process": {0, []func(m *machine){
			func(m *machine) {
				m.smi.devices, m.smi.apps = list(90), "GPU-0, 100, 5\n"
				m.process(100, 1001, 5000, "A=1\x00")
			}, func(*machine) {},
		}, []bool{false, false}},
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
