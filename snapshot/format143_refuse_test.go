package snapshot_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Valid parts. Each test row makes one of them invalid.
const (
	goodProcess    = `{"pid": 5, "used_gpu_memory": [{"index": 0, "gpu_memory": "7mi"}], "eid": "2020"}`
	goodAttachment = `{"eid": "2020", "gpu_memory": "4g", "time": "20/11/2026 21:10:33"}`
	goodDevice     = `{"index": 0, "total_memory": "81559mi", "attachments": [` + goodAttachment + `]}`
	goodEnv        = `{"eid": "2020", "uid": 1002, "creation": "20/11/2026 21:10:32", "username": "bob",` +
		` "config": {"name": null, "gpu_memory": "4g", "gpus": 2}, "pids": [25938], "kernel_ids": ["k1"]}`
)

func document(processes, envs, devices string) []byte {
	return fmt.Appendf(nil, `{"processes": {"processes": [%s]}, "envs": {"envs": [%s]}, "devices": {"devices": [%s]}}`, processes, envs, devices)
}

func TestTheValidPartsAreAccepted(t *testing.T) {
	s := proctest.Try(snapshot.DecodeSnapshot(document(goodProcess, goodEnv, goodDevice))).OK(t)
	require.Equal(t, snapshot.PID(5), s.Processes[0].PID)
	require.False(t, s.Processes[0].EnvUnknown)
	require.Equal(t, 2, *s.Environments[0].Config.GPUs)
	require.Equal(t, snapshot.MustMemory("4g"), s.Devices[0].Attachments[0].GPUMemory)
}

// TestOneOddValueHidesNothing: what can't be read is left out and named, and all else is there.
func TestOneOddValueHidesNothing(t *testing.T) {
	long := `"` + strings.Repeat("x", 5000) + `"`
	other := strings.NewReplacer("2020", "7", `"pid": 5`, `"pid": 6`, `"index": 0, "total`, `"index": 1, "total`)
	good := string(document(goodProcess+","+other.Replace(goodProcess), goodEnv+","+other.Replace(goodEnv), goodDevice+","+other.Replace(goodDevice)))
	want := proctest.Try(snapshot.DecodeSnapshot([]byte(good))).OK(t)
	for _, row := range []struct{ what, gone, part, with string }{
		{"a PID of 0", "process", `"pid": 5`, `"pid": 0`},
		{"a negative PID", "process", `"pid": 5`, `"pid": -5`},
		{"a PID that is text", "process", `"pid": 5`, `"pid": "5"`},
		{"a PID that is not a whole number", "process", `"pid": 5`, `"pid": 5.5`},
		{"a PID beyond 31 bits", "process", `"pid": 5`, `"pid": 2147483648`},
		{"no PID", "process", `"pid": 5`, `"pid": null`},
		{"an endless PID", "process", `"pid": 5`, `"pid": ` + strings.Repeat("9", 1<<20)},
		{"a usage that is null", "usage", `[{"index": 0, "gpu_memory": "7mi"}]`, `null`},
		{"a usage twice", "", `[{"index": 0, "gpu_memory": "7mi"}]`, `[{"index": 0, "gpu_memory": "7mi"}, {"index": 0, "gpu_memory": "7mi"}]`},
		{"a negative index", "usage", `"index": 0, "gpu_memory"`, `"index": -1, "gpu_memory"`},
		{"no index", "usage", `"index": 0, "gpu_memory"`, `"index": null, "gpu_memory"`},
		{"no index of a device", "device", `"index": 0, "total_memory"`, `"index": null, "total_memory"`},
		{"no uid", "", `1002`, `null`},
		{"a huge index", "usage", `"index": 0, "gpu_memory"`, `"index": 1024, "gpu_memory"`},
		{"memory that is not an amount", "", `"7mi"`, `"7 apples"`},
		{"memory that is a number", "", `"7mi"`, `7`},
		{"negative memory", "", `"7mi"`, `"-7mi"`},
		{"an escape in an id", "", `"eid": "2020"}`, `"eid": "\u001b[31m"}`},
		{"an id that is a number", "", `"eid": "2020"}`, `"eid": 2020}`},
		{"a long id", "", `"eid": "2020"}`, `"eid": ` + long + `}`},
		{"an additional key", "", `"pid": 5`, `"pid": 5, "start": 7`},
		{"a missing key", "process", `"pid": 5, `, ``},
		{"a key in upper case", "", `"pid": 5`, `"PID": 5`},
		{"a long key", "", `"pid": 5`, `"pid": 5, ` + long + `: 1`},
		{"an environment without an id", "environment", `"eid": "2020", "uid"`, `"eid": null, "uid"`},
		{"an environment with an empty id", "environment", `"eid": "2020", "uid"`, `"eid": "", "uid"`},
		{"a negative uid", "", `1002`, `-1`},
		{"a uid beyond 32 bits", "", `1002`, `4294967296`},
		{"another date", "", `"20/11/2026 21:10:32"`, `"2026-11-20T21:10:32Z"`},
		{"no date", "", `"20/11/2026 21:10:32"`, `null`},
		{"a newline in a user", "", `"bob"`, `"bob\nroot"`},
		{"a C1 control in a user", "", `"bob"`, `"bob\u009b"`},
		{"a negative number of GPUs", "", `"gpus": 2`, `"gpus": -2`},
		{"half a GPU", "", `"gpus": 2`, `"gpus": 0.5`},
		{"a configuration that is null", "", `{"name": null, "gpu_memory": "4g", "gpus": 2}`, `null`},
		{"PIDs that are null", "", `[25938]`, `null`},
		{"PID 0 among PIDs", "", `[25938]`, `[25938, 0]`},
		{"PID -1 among PIDs", "", `[25938]`, `[-1]`},
		{"a kernel without an id", "", `["k1"]`, `[null]`},

		{"a device without memory", "", `"81559mi"`, `null`},
		{"an attachment without an id", "attachment", `{"eid": "2020", "gpu_memory": "4g", "time"`, `{"eid": null, "gpu_memory": "4g", "time"`},
		{"an attachment twice", "", goodAttachment, goodAttachment + "," + goodAttachment},
		{"an attachment without a date", "", `"20/11/2026 21:10:33"`, `null`},
		{"an environment with a control character in its name", "", `"name": null`, `"name": "a\u0001b"`},
		{"an environment with a long name", "", `"name": null`, `"name": ` + long},
		{"a number as a name", "", `"name": null`, `"name": 5`},
		{"a process that is no object", "process", goodProcess, "5"},
		{"an environment that is null", "environment", goodEnv, "null"},
		{"a process twice", "", other.Replace(goodProcess), goodProcess + "," + other.Replace(goodProcess)},
		{"an environment twice", "", other.Replace(goodEnv), goodEnv + "," + other.Replace(goodEnv)},
		{"a device twice", "", other.Replace(goodDevice), goodDevice + "," + other.Replace(goodDevice)},
	} {
		t.Run(row.what, func(t *testing.T) {
			bad := strings.Replace(good, row.part, row.with, 1)
			require.NotEqual(t, good, bad, "the row changes nothing")
			s := proctest.Try(snapshot.DecodeSnapshot([]byte(bad))).OK(t)
			require.NotEmpty(t, s.Warnings)
			for _, warning := range s.Warnings {
				require.Less(t, len(warning), 1000)
				require.NotContains(t, warning, "\x1b")
			}
			require.Equal(t, lastOfAll(want), lastOfAll(s))
			count := func(kind string, n int) int { return n - strings.Count(row.gone, kind) }
			require.Len(t, s.Processes, count("process", 2))
			require.Len(t, s.Environments, count("environment", 2))
			require.Len(t, s.Devices, count("device", 2))
			require.Len(t, s.Processes[0].Usage, count("usage", 1))
			require.Len(t, s.Devices[0].Attachments, count("attachment", 1))
		})
	}
}

func lastOfAll(s *snapshot.Snapshot) []any {
	return []any{s.Processes[len(s.Processes)-1].PID, s.Environments[len(s.Environments)-1], s.Devices[len(s.Devices)-1]}
}

// TestOddOwnersAndIDs: someone who writes them into state files gains nothing by it, and who has
// them without a fault loses nothing.
func TestOddOwnersAndIDs(t *testing.T) {
	const odd = `\u001b[31m`
	text := strings.ReplaceAll(string(document(goodProcess, goodEnv, goodDevice)), "2020", odd)
	s := proctest.Try(snapshot.DecodeSnapshot([]byte(text))).OK(t)
	id := snapshot.Claim("\x1b[31m")
	require.Equal(t, id, s.Processes[0].EID, "the environment, its processes and its attachments have the same other id")
	require.NotNil(t, s.Environment(id))
	require.Equal(t, []snapshot.DeviceIndex{0}, snapshot.AttachedTo(s.Devices, id))

	s = proctest.Try(snapshot.DecodeSnapshot([]byte(strings.Replace(string(document(goodProcess, goodEnv, goodDevice)), "1002", `"root"`, 1)))).OK(t)
	env, uid := s.Environment("2020"), snapshot.UID(1002)
	require.Equal(t, snapshot.NoUID, env.UID)
	require.Empty(t, env.Username)
	require.True(t, env.Admits(&uid))

	s = proctest.Try(snapshot.DecodeSnapshot(document(goodProcess, goodEnv, goodDevice+","+strings.ReplaceAll(goodDevice, "2020", "7")))).OK(t)
	require.Len(t, s.Devices[0].Attachments, 2, "a device that is listed twice has the attachments of both")
	require.Equal(t, []string{"GPU 0 is listed twice: it has the attachments of both"}, s.Warnings)
	s = proctest.Try(snapshot.DecodeSnapshot([]byte(strings.Replace(string(document(goodProcess, goodEnv, goodDevice)), `"eid": "2020"}`, `"eid": 2020}`, 1)))).OK(t)
	require.True(t, s.Processes[0].EnvUnknown, "which environment the host meant isn't known")
}

func TestInvalidDocumentsAreRefused(t *testing.T) {
	good := string(document(goodProcess, goodEnv, goodDevice))
	for what, bad := range map[string]string{
		"nothing":            "",
		"null":               "null",
		"a list":             "[]",
		"an empty object":    "{}",
		"half of it":         good[:len(good)/2],
		"something after it": good + "x",
		"two of it":          good + good,
		"noise before it":    "Welcome to gpu01\n" + good,
		"another document":   `{"envs": []}`,
		"deep nesting":       strings.Repeat("[", 100000),
		"too many devices":   string(document("", "", strings.Repeat("{},", 1024)+"{}")),
	} {
		require.ErrorIs(t, proctest.Try(snapshot.DecodeSnapshot([]byte(bad))).Err, snapshot.ErrInvalid, what)
	}
	for cut := range len(good) { // a truncated document
		require.ErrorIs(t, proctest.Try(snapshot.DecodeSnapshot([]byte(good[:cut]))).Err, snapshot.ErrInvalid)
	}
}

// Each of them is looked up in /proc under the lock, for which others wait.
func TestTheProcessesOfAllEnvironmentsTogetherAreBounded(t *testing.T) {
	pids := `"pids": [` + strings.Repeat("7,", 39_999) + "7]"
	env := func(eid string) string {
		return strings.Replace(strings.Replace(goodEnv, `"pids": [25938]`, pids, 1), "2020", eid, 1)
	}
	_, err := snapshot.DecodeEnvironments([]byte(`{"envs": [` + env("1") + `]}`))
	require.NoError(t, err)
	_, err = snapshot.DecodeEnvironments([]byte(`{"envs": [` + env("1") + "," + env("2") + `]}`))
	require.ErrorIs(t, err, snapshot.ErrInvalid)
	require.ErrorContains(t, err, "80002 pids and kernels are more than the maximum of 65536")
}

// Every decoded value takes memory, even if it is refused later: a host must not be able
// to fill the memory of the controller.
func TestTooManyValuesAreRefusedWithoutDecoding(t *testing.T) {
	for value, n := range map[string]int{"{}": 1 << 20, "0": 2 << 20, "null": 2 << 20} {
		many := strings.Repeat(value+",", n) + value
		for name, row := range map[string]struct {
			data   []byte
			decode func([]byte) error
		}{
			"a snapshot":        {document(many, "", ""), func(d []byte) error { _, err := snapshot.DecodeSnapshot(d); return err }},
			"envs.json":         {[]byte(`{"envs": [` + many + `]}`), func(d []byte) error { _, err := snapshot.DecodeEnvironments(d); return err }},
			"the native format": {[]byte(`{"processes":[],"devices":[],"envs":[` + many + `]}`), func(d []byte) error { _, err := snapshot.DecodeNative(d); return err }},
			"a native order":    {[]byte("[" + many + "]"), func(d []byte) error { _, err := snapshot.DecodeNativeProcesses(d); return err }},
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			require.ErrorIs(t, row.decode(row.data), snapshot.ErrInvalid, name)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "bytes for %s of %q", name, value)
		}
	}
}

// What users choose, such as the command lines of their processes, makes no host unreadable.
func TestTextsAreNotValues(t *testing.T) {
	text := `["` + strings.Repeat(`,{\\\",`, 1<<20) + `"]`
	require.True(t, json.Valid([]byte(text)))
	require.NoError(t, snapshot.CheckAmount([]byte(text)))
	require.ErrorIs(t, snapshot.CheckAmount([]byte(text[:len(text)-1]+strings.Repeat(",0", 2<<20)+"]")), snapshot.ErrInvalid)
}

func TestCheckText(t *testing.T) {
	for _, good := range []string{"", "alice", "Norwegian Wood", "日本語", "\u202e", `$(reboot)`, strings.Repeat("x", 4096)} {
		require.NoError(t, snapshot.CheckText("name", good))
	}
	for _, bad := range []string{"\n", "a\x00b", "\x1b[31m", "\x7f", "\u009b", "\xff", "é\xc3", strings.Repeat("x", 4097)} {
		require.ErrorIs(t, snapshot.CheckText("name", bad), snapshot.ErrInvalid)
	}
}
