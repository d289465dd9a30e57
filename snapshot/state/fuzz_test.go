package state_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// FuzzFiles lets any two files be the state. If they are read at all, whatever is done to the state files can be
// written and read again, and no device is given away twice.
func FuzzFiles(f *testing.F) {
	envs, err := os.ReadFile("../testdata/genv-1.4.3/state/envs.json")
	require.NoError(f, err)
	devices, err := os.ReadFile("../testdata/genv-1.4.3/state/devices.json")
	require.NoError(f, err)
	f.Add(envs, devices, "9", 2, 0, "4g", int32(77))
	f.Add([]byte(`{"envs": [`+one+`]}`), []byte(`{"devices": []}`), "1", 0, 3, "", int32(1))
	f.Add([]byte(`{"envs": []}`), []byte(`{"devices": [{"index": 1, "total_memory": "1g", "attachments": []}]}`), "\x00", -1, -1, "1gi", int32(-5))
	f.Add([]byte(olderEnvs), []byte(olderDevices), "2020", 1, 0, "", int32(9))
	f.Add([]byte(``), []byte(`{"devices": null}`), "", 0, 0, "x", int32(0))
	f.Fuzz(func(t *testing.T, envs, devices []byte, eid string, count, index int, memory string, pid int32) {
		files, ok := decodeFiles(envs, devices)
		if !ok {
			return
		}
		capacity, _ := snapshot.ParseMemory(memory) // what is no memory asks for whole devices
		request := state.AttachRequest{EID: snapshot.EnvID(eid), Memory: capacity, At: at("12:00:00")}
		if request.Count = count; count == 0 {
			request.Indices = indices{snapshot.DeviceIndex(index)}
		}
		fits := exclusive(&files) == nil
		_ = files.Activate(state.Activation{EID: request.EID, PID: snapshot.PID(pid), At: request.At})
		got, err := files.Attach(request)
		if err == nil {
			require.Equal(t, got, files.AttachedTo(request.EID))
			require.GreaterOrEqual(t, len(got), request.Count)
		}
		if fits {
			require.NoError(t, exclusive(&files))
		}
		again(t, &files)
		files.MergeDevices(gpus(2))
		files.Deactivate(snapshot.PID(pid))
		files.Detach(request.EID)
		require.Empty(t, files.AttachedTo(request.EID))
		again(t, &files)
	})
}

func decodeFiles(envs, devices []byte) (files state.Files, ok bool) {
	ok = files.Decode(state.Envs, envs) == nil && files.Decode(state.Devices, devices) == nil
	return files, ok
}

// again writes the state files and reads them back.
func again(t *testing.T, files *state.Files) {
	t.Helper()
	envs, err := files.Encode(state.Envs)
	require.NoError(t, err)
	devices, err := files.Encode(state.Devices)
	require.NoError(t, err)
	_, ok := decodeFiles(envs, devices)
	require.True(t, ok, "%s\n%s", envs, devices)
}

const one = `{"eid":"1","uid":1,"creation":"20/11/2026 21:10:33","username":null,` +
	`"config":{"name":null,"gpu_memory":null,"gpus":null},"pids":[1],"kernel_ids":[]}`

// exclusive says which device has more attachments than fit.
func exclusive(b *state.Files) error {
	for _, d := range b.Devices {
		room, whole := d.TotalMemory.Bytes(), 0
		for _, a := range d.Attachments {
			room -= a.GPUMemory.Bytes()
			if !a.GPUMemory.Known() {
				whole++
			}
		}
		if room < 0 || (whole > 0 && len(d.Attachments) > 1) {
			return fmt.Errorf("device %d is attached twice: %v", d.Index, d.Attachments)
		}
	}
	return nil
}

func at(text string) snapshot.Date {
	d, err := snapshot.ParseDate("20/11/2026 " + text)
	if err != nil {
		panic(err)
	}
	return d
}

// gpus are n devices of 80 GiB without attachments.
func gpus(n int) []snapshot.Device {
	devices := make([]snapshot.Device, n)
	for i := range devices {
		devices[i] = snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MustMemory("81920mi")}
	}
	return devices
}
