package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/sim"
	"github.com/seed-3119e985/genv/remote/sim/genvhost"
	"github.com/seed-3119e985/genv/snapshot"
)

// A file that is something else is neither written to nor enforced over.
func TestTheAuditLogIsNoOtherFile(t *testing.T) {
	host := genvhost.New(outsiders(1))
	f := startSim(t, sim.HostOptions{Name: "a", Handler: host})
	const text = "root:x:0:0:root:/root:/bin/bash" // without an end of line, which a log would be given
	path := filepath.Join(t.TempDir(), "passwd")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	for _, more := range [][]string{nil, {"--act-unrecorded"}, {"--dry-run"}} {
		args := append([]string{"remote", "enforce", "-F", f.SSHConfig(), "-H", "a", "--non-env-processes", "--interval", "0", "--audit-log", path}, more...)
		r := genv(t, args...)
		require.Equal(t, result{code: exitFailed, err: "genv: --audit-log: " + path + ": the file exists and is not an audit log of genv; nothing was done: name another file\n"}, r)
	}
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, text, string(content))
	require.Empty(t, host.Carried())
	require.Zero(t, f.Host("a").Counts().Connections)

	log := filepath.Join(t.TempDir(), "audit.jsonl")
	for range 2 { // one that begins, and one that goes on
		r := genv(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "a", "--non-env-processes", "--interval", "0", "--audit-log", log)
		require.Zero(t, r.code, r.err)
	}
	require.Len(t, host.Carried(), 1)
}

// outsiders are processes in no environment, one on each of n devices.
func outsiders(n int) *snapshot.Snapshot {
	s := &snapshot.Snapshot{BootID: "b"}
	for i := range n {
		index := snapshot.DeviceIndex(i)
		s.Devices = append(s.Devices, snapshot.Device{Index: index, TotalMemory: snapshot.MiB(81559)})
		s.Processes = append(s.Processes, snapshot.Process{
			PID: snapshot.PID(1000 + i), Start: snapshot.StartTime(77 + i), Usage: []snapshot.DeviceUsage{{Index: index, Memory: snapshot.MiB(10)}},
		})
	}
	return s
}
