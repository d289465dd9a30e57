package amdgpu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// machine is a machine with two GPUs. Its files are constructed after the kernel's
// documentation and sources, with made-up ids: none was recorded on a machine.
func machine(t *testing.T) (FS, func(name, content string)) {
	t.Helper()
	f := FS{Sys: filepath.Join(t.TempDir(), "sys"), Proc: filepath.Join(t.TempDir(), "proc")}
	require.NoError(t, os.CopyFS(f.Sys, os.DirFS("testdata/constructed/mi210/sys")))
	require.NoError(t, os.MkdirAll(f.Proc, 0o755))
	return f, func(name, content string) {
		t.Helper()
		path := filepath.Join(f.Sys, name)
		if rest, ok := strings.CutPrefix(name, "proc/"); ok {
			path = filepath.Join(f.Proc, rest)
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
}

// open has a process open a render node.
func open(t *testing.T, f FS, write func(name, content string), pid, fd int, fdinfo string) {
	t.Helper()
	dir := filepath.Join(f.Proc, fmt.Sprint(pid), "fd")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.Symlink("/dev/dri/renderD129", filepath.Join(dir, fmt.Sprint(fd))))
	write(fmt.Sprintf("proc/%d/fdinfo/%d", pid, fd), fdinfo)
}

func fdinfo(client int, vram, compute, gfx string) string {
	return fmt.Sprintf("pos:\t0\nflags:\t02100002\ndrm-driver:\tamdgpu\ndrm-client-id:\t%d\ndrm-pdev:\t0000:C3:00.0\npasid:\t32770\n"+
		"drm-memory-vram:\t%s\ndrm-engine-compute:\t%s\ndrm-engine-gfx:\t%s\n", client, vram, compute, gfx)
}

func TestDevices(t *testing.T) {
	f, _ := machine(t)
	require.True(t, f.Present())
	devices, err := f.Devices(t.Context())
	require.NoError(t, err)
	zero, busy, cold, warm, watts := 0, 87, 34, 61, 212.0
	idle := 41.0
	require.Equal(t, []nvidiasmi.GPU{
		{
			Index: 0, UUID: "GPU-1f2e3d4c5b6a7980", Name: "AMD Instinct MI210", TotalMemory: snapshot.MiB(65520), UsedMemory: snapshot.MiB(10),
			Utilization: &zero, Temperature: &cold, Power: &idle,
		},
		{
			Index: 1, UUID: "GPU-1f2e3d4c5b6a7981", Name: "gfx90a", TotalMemory: snapshot.MiB(65520), UsedMemory: snapshot.MiB(4112),
			Utilization: &busy, Temperature: &warm, Power: &watts,
		},
	}, devices)
	list, err := f.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, nvidiasmi.ListedGPU{Index: 1, UUID: "GPU-1f2e3d4c5b6a7981"}, list[1])
}

// TestWhatIsNotMeasured is unknown, and never 0.
func TestWhatIsNotMeasured(t *testing.T) {
	f, write := machine(t)
	require.NoError(t, os.RemoveAll(filepath.Join(f.Sys, "class/drm/renderD129")))
	write("class/drm/renderD128/device/gpu_busy_percent", "-16\n")
	write("class/drm/renderD128/device/mem_info_vram_used", "many\n")
	devices, err := f.Devices(t.Context())
	require.NoError(t, err)
	require.Equal(t, nvidiasmi.GPU{Index: 1, UUID: "GPU-1f2e3d4c5b6a7981", Name: "gfx90a"}, devices[1])
	require.Nil(t, devices[0].Utilization)
	require.False(t, devices[0].UsedMemory.Known())
}

// TestHidden: kfd refuses to describe GPUs that the device cgroup denies to this process.
func TestHidden(t *testing.T) {
	f, _ := machine(t)
	require.NoError(t, os.Chmod(filepath.Join(f.Sys, "class/kfd/kfd/topology/nodes/2/gpu_id"), 0))
	asUser(t, filepath.Dir(filepath.Dir(f.Sys)))
	_, err := f.Devices(t.Context())
	require.ErrorIs(t, err, ErrHidden)
	require.ErrorIs(t, err, fs.ErrPermission)
	_, err = f.Apps(t.Context())
	require.ErrorIs(t, err, ErrHidden, "the processes of some GPUs are not those of all")
	require.True(t, f.Present())
}

// asUser has this thread open files with the rights of an ordinary user, who gets the folder,
// until the test ends.
func asUser(t *testing.T, folder string) {
	t.Helper()
	const user = 65534
	if os.Getuid() != 0 {
		return
	}
	require.NoError(t, filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, user, user))
	}))
	runtime.LockOSThread()
	require.NoError(t, unix.Setfsuid(user))
	t.Cleanup(func() {
		assert.NoError(t, unix.Setfsuid(0))
		runtime.UnlockOSThread()
	})
}

// TestPartitions of a GPU have one unique id and one address.
func TestPartitions(t *testing.T) {
	f, write := machine(t)
	for node := 1; node <= 2; node++ {
		write(fmt.Sprintf("class/kfd/kfd/topology/nodes/%d/properties", node), "drm_render_minor 129\nunique_id 5\nlocation_id 49920\ndomain 0\n")
	}
	write("class/kfd/kfd/proc/700/vram_51234", "4096000\n")
	open(t, f, write, 700, 5, fdinfo(1, "8000000 KiB", "5 ns", "0 ns"))
	devices, err := f.Devices(t.Context())
	require.NoError(t, err)
	require.Equal(t, []snapshot.GPUUUID{"KFD-51234", "KFD-51235"}, []snapshot.GPUUUID{devices[0].UUID, devices[1].UUID})
	usage, err := f.Apps(t.Context())
	require.NoError(t, err)
	require.Equal(t, []nvidiasmi.App{{GPU: "KFD-51234", PID: 700, Memory: snapshot.MiB(3)}}, usage.Apps)
}

func TestApps(t *testing.T) {
	const first, second = "GPU-1f2e3d4c5b6a7980", "GPU-1f2e3d4c5b6a7981"
	mib := snapshot.MiB
	for name, row := range map[string]struct {
		files map[string]string // of kfd/proc
		open  []string          // fdinfo of process 700, of GPU 1
		want  []nvidiasmi.App
	}{
		"none":                   {},
		"memory":                 {map[string]string{"700/vram_51234": "1048576", "700/vram_51235": "0"}, nil, []nvidiasmi.App{{GPU: first, PID: 700, Memory: mib(1)}}},
		"memory on both":         {map[string]string{"700/vram_51234": "1048576", "700/vram_51235": "2097152"}, nil, []nvidiasmi.App{{GPU: first, PID: 700, Memory: mib(1)}, {GPU: second, PID: 700, Memory: mib(2)}}},
		"listed, and unused":     {map[string]string{"700/vram_51234": "0", "700/vram_51235": "0"}, nil, nil},
		"a queue without memory": {map[string]string{"700/vram_51235": "0", "700/queues/0/gpuid": "51235"}, nil, []nvidiasmi.App{{GPU: second, PID: 700, Memory: mib(0)}}},
		"an older kernel":        {map[string]string{"700/queues/0/gpuid": "51235"}, nil, []nvidiasmi.App{{GPU: second, PID: 700}}},
		"a queue of another GPU": {map[string]string{"700/queues/0/gpuid": "9"}, nil, nil},
		"two processes":          {map[string]string{"700/vram_51234": "1048576", "80/vram_51234": "1048576"}, nil, []nvidiasmi.App{{GPU: first, PID: 80, Memory: mib(1)}, {GPU: first, PID: 700, Memory: mib(1)}}},

		"more memory by fdinfo":     {map[string]string{"700/vram_51235": "1048576"}, []string{fdinfo(1, "3072 KiB", "5 ns", "0 ns")}, []nvidiasmi.App{{GPU: second, PID: 700, Memory: mib(3)}}},
		"copies of a descriptor":    {map[string]string{"700/queues/0/gpuid": "51235"}, []string{fdinfo(1, "3 MiB", "", ""), fdinfo(1, "3 MiB", "", "")}, []nvidiasmi.App{{GPU: second, PID: 700, Memory: mib(3)}}},
		"two clients":               {map[string]string{"700/queues/0/gpuid": "51235"}, []string{fdinfo(1, "3 MiB", "", ""), fdinfo(2, "3 MiB", "", "")}, []nvidiasmi.App{{GPU: second, PID: 700, Memory: mib(6)}}},
		"computes without kfd":      {nil, []string{fdinfo(1, "3 MiB", "5 ns", "0 ns")}, []nvidiasmi.App{{GPU: second, PID: 700, Memory: mib(3)}}},
		"an X server":               {nil, []string{fdinfo(1, "3 MiB", "5 ns", "7 ns")}, nil},
		"opened, and unused":        {nil, []string{fdinfo(1, "3 MiB", "0 ns", "0 ns")}, nil},
		"kfd knows it, without use": {map[string]string{"700/vram_51235": "0"}, []string{fdinfo(1, "3 MiB", "5 ns", "0 ns")}, nil},
		"another driver":            {nil, []string{strings.Replace(fdinfo(1, "3 MiB", "5 ns", "0 ns"), "amdgpu", "i915", 1)}, nil},
		"another GPU":               {nil, []string{strings.Replace(fdinfo(1, "3 MiB", "5 ns", "0 ns"), "C3", "C4", 1)}, nil},
		"no client":                 {nil, []string{strings.Replace(fdinfo(1, "3 MiB", "5 ns", "0 ns"), "drm-client-id", "x", 1)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, write := machine(t)
			for file, content := range row.files {
				write("class/kfd/kfd/proc/"+file, content+"\n")
			}
			for i, text := range row.open {
				open(t, f, write, 700, i, text)
			}
			usage, err := f.Apps(t.Context())
			require.NoError(t, err)
			require.Equal(t, row.want, usage.Apps)
		})
	}
}

// TestRecent: a process that opens a render node without kfd is found by the next search; those
// that are known, and those of kfd, are looked at each time.
func TestRecent(t *testing.T) {
	f, write := machine(t)
	now := time.Unix(1800000000, 0)
	f.Recent = &Recent{Now: func() time.Time { return now }}
	pids := func() (list []snapshot.PID) {
		usage, err := f.Apps(t.Context())
		require.NoError(t, err)
		for _, app := range usage.Apps {
			if app.Memory != snapshot.MiB(9) {
				list = append(list, -app.PID)
			} else {
				list = append(list, app.PID)
			}
		}
		return list
	}
	compute := func(pid int, vram string) { open(t, f, write, pid, 0, fdinfo(pid, vram, "5 ns", "0 ns")) }
	compute(700, "9 MiB")
	require.Equal(t, []snapshot.PID{700}, pids())
	compute(701, "9 MiB")
	now = now.Add(searchEvery - 1)
	require.Equal(t, []snapshot.PID{700}, pids())
	write("proc/700/fdinfo/0", fdinfo(700, "3 MiB", "6 ns", "0 ns"))
	write("class/kfd/kfd/proc/702/queues/0/gpuid", "51235\n")
	compute(702, "9 MiB")
	require.Equal(t, []snapshot.PID{-700, 702}, pids(), "as they are now")
	now = now.Add(1)
	require.Equal(t, []snapshot.PID{-700, 701, 702}, pids())
	require.NoError(t, os.RemoveAll(filepath.Join(f.Proc, "701")))
	require.Equal(t, []snapshot.PID{-700, 702}, pids(), "ended")
	compute(703, "9 MiB")
	now = now.Add(-time.Hour)
	require.Equal(t, []snapshot.PID{-700, 702, 703}, pids(), "the clock was set back")
}

func TestWhatIsRefused(t *testing.T) {
	for name, row := range map[string]struct {
		change func(f FS, write func(name, content string)) error
		is     error
	}{
		"no kfd": {func(f FS, _ func(string, string)) error {
			return os.RemoveAll(filepath.Join(f.Sys, "class/kfd"))
		}, ErrNoDriver},
		"only CPUs": {func(f FS, _ func(string, string)) error {
			return os.RemoveAll(filepath.Join(f.Sys, "class/kfd/kfd/topology"))
		}, ErrNoDriver},
		"no list of processes": {func(f FS, _ func(string, string)) error {
			return os.RemoveAll(filepath.Join(f.Sys, "class/kfd/kfd/proc"))
		}, fs.ErrNotExist},
		"a process without a PID": {func(_ FS, write func(string, string)) error {
			write("class/kfd/kfd/proc/x/pasid", "1")
			return nil
		}, ErrGarbled},
		"memory that is no number": {func(_ FS, write func(string, string)) error {
			write("class/kfd/kfd/proc/7/vram_51234", "1 GiB")
			return nil
		}, ErrGarbled},
		"more memory than there is": {func(_ FS, write func(string, string)) error {
			write("class/kfd/kfd/proc/7/vram_51234", "18446744073709551615")
			return nil
		}, ErrGarbled},
		"an id that is no number": {func(_ FS, write func(string, string)) error {
			write("class/kfd/kfd/topology/nodes/1/gpu_id", "x")
			return nil
		}, ErrGarbled},
		"no properties": {func(_ FS, write func(string, string)) error {
			write("class/kfd/kfd/topology/nodes/1/properties", "")
			return nil
		}, ErrGarbled},
	} {
		t.Run(name, func(t *testing.T) {
			f, write := machine(t)
			require.NoError(t, row.change(f, write))
			_, err := f.Apps(t.Context())
			require.ErrorIs(t, err, row.is)
		})
	}
	f, write := machine(t)
	write("class/kfd/kfd/proc/7/vram_51234", "5")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.Apps(cancelled)
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, FS{Sys: t.TempDir()}.Present())
}

func FuzzParseProperties(f *testing.F) {
	data, err := os.ReadFile("testdata/constructed/mi210/sys/class/kfd/kfd/topology/nodes/1/properties")
	require.NoError(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		properties, err := parseProperties(data)
		if err != nil {
			require.ErrorIs(t, err, ErrGarbled)
			return
		}
		require.NotEmpty(t, properties)
		require.Regexp(t, `^[0-9a-f]{4,16}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`, addressOf(properties))
	})
}

func FuzzParseClient(f *testing.F) {
	f.Add([]byte(fdinfo(1, "3 MiB", "5 ns", "0 ns")))
	f.Add([]byte("drm-driver: amdgpu\ndrm-pdev: x\ndrm-client-id: 1\ndrm-memory-vram: 99999999999999999999 GiB"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, ok := parseClient(data); ok {
			require.NotEmpty(t, c.address)
			require.LessOrEqual(t, c.vram, uint64(maxBytes))
		}
	})
}
