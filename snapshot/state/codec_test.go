package state_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/statetest"
)

var at, gpus, exclusive = statetest.At, statetest.GPUs, statetest.Exclusive

// What genv 0.9 and 0.8 wrote.
const (
	olderEnvs = `{"envs": {
		"2020": {"eid": "2020", "uid": 1002, "creation": "20/11/2026 21:10:33", "username": "bob", "config": {"name": null, "gpu_memory": "4g", "gpus": 2}, "pids": [9, 10], "kernel_ids": ["k"]},
		"1667": {"eid": "1667", "uid": 0, "creation": "20/11/2026 21:10:32", "config": {"name": "my-env"}, "pids": [8]},
		"7": {"uid": 1001, "creation": "20/11/2026 21:10:31", "config": {}}
	}, "version": 1}`
	olderDevices = `{"devices": {
		"10": {"total_memory": "80g", "eids": {}},
		"0": {"total_memory": "81559mi", "eids": {"2020": {"eid": "2020", "gpu_memory": "4g", "attached": "20/11/2026 21:10:34"}, "1667": {"gpu_memory": null, "attached": "20/11/2026 21:10:33"}}},
		"1": {"total_memory": "81559mi", "eids": {}}
	}, "version": 1}`
)

func TestOlderFilesAreConverted(t *testing.T) {
	files, ok := decodeFiles([]byte(olderEnvs), []byte(olderDevices))
	require.True(t, ok)
	require.Equal(t, []snapshot.Environment{
		{EID: "7", UID: 1001, Creation: at("21:10:31"), PIDs: []snapshot.PID{}, KernelIDs: []string{}},
		{EID: "1667", UID: 0, Creation: at("21:10:32"), Config: snapshot.EnvConfig{Name: "my-env"}, PIDs: []snapshot.PID{8}, KernelIDs: []string{}},
		{EID: "2020", UID: 1002, Username: "bob", Creation: at("21:10:33"), Config: snapshot.EnvConfig{GPUMemory: snapshot.MustMemory("4g"), GPUs: new(2)}, PIDs: []snapshot.PID{9, 10}, KernelIDs: []string{"k"}},
	}, files.Environments)
	require.Equal(t, []snapshot.Device{
		{Index: 0, TotalMemory: snapshot.MustMemory("81559mi"), Attachments: []snapshot.Attachment{
			{EID: "1667", Time: at("21:10:33")}, {EID: "2020", GPUMemory: snapshot.MustMemory("4g"), Time: at("21:10:34")},
		}},
		{Index: 1, TotalMemory: snapshot.MustMemory("81559mi"), Attachments: []snapshot.Attachment{}},
		{Index: 10, TotalMemory: snapshot.MustMemory("80g"), Attachments: []snapshot.Attachment{}},
	}, files.Devices)
}

// What is written is what 1.4.3 writes, whatever was read: the recording as objects, and
// as lists, come out as the recording.
func TestWhatIsWrittenIsTheFormOf143(t *testing.T) {
	for _, name := range []string{"envs.json", "devices.json"} {
		file := map[string]state.File{"envs.json": state.Envs, "devices.json": state.Devices}[name]
		recorded := proctest.ReadFile(t, "../testdata/genv-1.4.3/state/"+name)
		for _, data := range [][]byte{recorded, older(t, file, recorded)} {
			var files state.Files
			require.NoError(t, files.Decode(file, data), "%s", data)
			require.Equal(t, string(recorded), string(proctest.Try(files.Encode(file)).OK(t)))
		}
	}
}

func TestFilesThatNoVersionWrote(t *testing.T) {
	one := `"uid": 1, "creation": "20/11/2026 21:10:32"`
	for name, text := range map[string]string{
		"no uid":                 `{"envs": {"7": {"creation": "20/11/2026 21:10:32"}}}`,
		"no creation":            `{"envs": {"7": {"uid": 1}}}`,
		"no id":                  `{"envs": {"": {` + one + `}}}`,
		"one id twice":           `{"envs": {"7": {` + one + `}, "8": {"eid": "7", ` + one + `}}}`,
		"a control character":    `{"envs": {"7\u0007": {` + one + `}}}`,
		"pids are words":         `{"envs": {"7": {` + one + `, "pids": ["x"]}}}`,
		"an environment is null": `{"envs": {"7": null}}`,
		"envs is null":           `{"envs": null}`,
		"empty":                  `{}`,
	} {
		require.ErrorIs(t, new(state.Files).Decode(state.Envs, []byte(text)), snapshot.ErrInvalid, name)
	}
	for name, text := range map[string]string{
		"an index is a word":  `{"devices": {"x": {"total_memory": "1g", "eids": {}}}}`,
		"an index twice":      `{"devices": {"1": {"total_memory": "1g", "eids": {}}, "01": {"total_memory": "1g", "eids": {}}}}`,
		"a negative index":    `{"devices": {"-1": {"total_memory": "1g", "eids": {}}}}`,
		"no memory":           `{"devices": {"1": {"eids": {}}}}`,
		"no date":             `{"devices": {"1": {"total_memory": "1g", "eids": {"7": {"eid": "7", "gpu_memory": null}}}}}`,
		"many indices":        `{"devices": {"99999": {"total_memory": "1g", "eids": {}}}}`,
		"an attachment twice": `{"devices": {"1": {"total_memory": "1g", "eids": {"7": {"attached": "20/11/2026 21:10:32"}, "8": {"eid": "7", "attached": "20/11/2026 21:10:32"}}}}}`,
	} {
		require.ErrorIs(t, new(state.Files).Decode(state.Devices, []byte(text)), snapshot.ErrInvalid, name)
	}
}

// older is a file of 1.4.3 in the form of 0.8.
func older(t *testing.T, file state.File, data []byte) []byte {
	t.Helper()
	var files state.Files
	require.NoError(t, files.Decode(file, data))
	var items []string
	for _, e := range files.Environments {
		written := proctest.Try(snapshot.EncodeEnvironments([]snapshot.Environment{e})).OK(t)
		one := strings.TrimSuffix(strings.TrimPrefix(string(written), `{`+"\n"+`  "envs": [`), "]\n}")
		items = append(items, `"`+string(e.EID)+`": `+strings.ReplaceAll(one, `"kernel_ids": []`, `"kernel_ids": null`))
	}
	if file == state.Envs {
		return []byte(`{"envs": {` + strings.Join(items, ", ") + `}}`)
	}
	for _, d := range files.Devices {
		var attachments []string
		for _, a := range d.Attachments {
			memory := "null"
			if a.GPUMemory.Known() {
				memory = `"` + a.GPUMemory.String() + `"`
			}
			attachments = append(attachments, `"`+string(a.EID)+`": {"eid": "`+string(a.EID)+`", "gpu_memory": `+memory+`, "attached": "`+a.Time.String()+`"}`)
		}
		items = append(items, `"`+d.Index.String()+`": {"total_memory": "`+d.TotalMemory.String()+`", "eids": {`+strings.Join(attachments, ", ")+`}}`)
	}
	return []byte(`{"devices": {` + strings.Join(items, ", ") + `}}`)
}

// FuzzOlder: what is read of any text can be written, and is the same when it is read again.
func FuzzOlder(f *testing.F) {
	f.Add([]byte(olderEnvs), true)
	f.Add([]byte(olderDevices), false)
	f.Add([]byte(`{"envs": {"": {"eid": 7}}}`), true)
	f.Fuzz(func(t *testing.T, data []byte, envs bool) {
		file := state.Devices
		if envs {
			file = state.Envs
		}
		var files, again state.Files
		if err := files.Decode(file, data); err != nil {
			require.ErrorIs(t, err, snapshot.ErrInvalid)
			return
		}
		require.NoError(t, again.Decode(file, proctest.Try(files.Encode(file)).OK(t)))
		require.Equal(t, len(files.Environments)+len(files.Devices), len(again.Environments)+len(again.Devices))
	})
}

// Any user can write a file that takes a hundred times its length in memory, and seconds
// under the lock, once it is converted.
func TestLargeOlderFilesAreNotConverted(t *testing.T) {
	entries := make([]string, 200_000)
	for i := range entries {
		entries[i] = fmt.Sprintf(`"%d":{}`, i)
	}
	for file, name := range map[state.File]string{state.Envs: "envs", state.Devices: "devices"} {
		content := []byte(`{"` + name + `":{` + strings.Join(entries, ",") + `}}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := new(state.Files).Decode(file, content)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, snapshot.ErrInvalid)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20), name)
	}
}

// TestManyOlderEnvironments: a thousand environments are more than any host has.
func TestManyOlderEnvironments(t *testing.T) {
	entries := make([]string, 1000)
	for i := range entries {
		entries[i] = fmt.Sprintf(`"%d": {"eid": "%[1]d", "uid": 1001, "creation": "20/11/2026 21:10:33", "username": "bob",
			"config": {"name": null, "gpu_memory": "4g", "gpus": 2}, "pids": [%[1]d, 9, 10], "kernel_ids": []}`, i+1)
	}
	var files state.Files
	require.NoError(t, files.Decode(state.Envs, []byte(`{"envs": {`+strings.Join(entries, ",")+`}}`)))
	require.Len(t, files.Environments, 1000)
}

// FuzzFiles lets any two files be the state. If they are read at all, whatever is done to the state files can be
// written and read again, and no device is given away twice.
func FuzzFiles(f *testing.F) {
	envs := proctest.ReadFile(f, "../testdata/genv-1.4.3/state/envs.json")
	devices := proctest.ReadFile(f, "../testdata/genv-1.4.3/state/devices.json")
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
		if got, err := files.Attach(request); err == nil {
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
	envs := proctest.Try(files.Encode(state.Envs)).OK(t)
	devices := proctest.Try(files.Encode(state.Devices)).OK(t)
	_, ok := decodeFiles(envs, devices)
	require.True(t, ok, "%s\n%s", envs, devices)
}

const one = `{"eid":"1","uid":1,"creation":"20/11/2026 21:10:33","username":null,` +
	`"config":{"name":null,"gpu_memory":null,"gpus":null},"pids":[1],"kernel_ids":[]}`
