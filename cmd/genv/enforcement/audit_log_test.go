package enforcement_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

// A file that is something else is neither written to nor enforced over.
func TestTheAuditLogIsNoOtherFile(t *testing.T) {
	host := genvhost.New(outsiders(1))
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: host})
	const text = "root:x:0:0:root:/root:/bin/bash" // without an end of line, which a log would be given
	path := filepath.Join(t.TempDir(), "passwd")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	for _, more := range [][]string{nil, {"--act-unrecorded"}, {"--dry-run"}} {
		args := append([]string{"remote", "enforce", "-F", f.SSHConfig(), "-H", "a", "--non-env-processes", "--interval", "0", "--audit-log", path}, more...)
		r := genvtest.Run(t, args...)
		require.Equal(t, genvtest.Result{Code: command.ExitFailed, Err: "genv: --audit-log: " + path + ": the file exists and is not an audit log of genv; nothing was done: name another file\n"}, r)
	}
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, text, string(content))
	require.Empty(t, host.Actions())
	require.Zero(t, f.Host("a").Counts().Connections)

	log := filepath.Join(t.TempDir(), "audit.jsonl")
	for range 2 { // one that begins, and one that goes on
		r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "a", "--non-env-processes", "--interval", "0", "--audit-log", log)
		require.Zero(t, r.Code, r.Err)
	}
	require.Len(t, host.Actions(), 1)
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

// That the limits hold cycles back reaches the administrator: in each of them by the hook
// and in the log, and once on stderr.
func TestHeldCyclesReachTheAdministrator(t *testing.T) {
	host := genvhost.New(outsiders(3))
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: host})
	dir := t.TempDir()
	hook, log, policy := filepath.Join(dir, "hook"), filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "policy.yaml")
	require.NoError(t, os.WriteFile(hook, []byte("#!/bin/sh\n{ cat; echo; } >> $0.events\n"), 0o700))
	text := "defaults: {non-env-processes: true}\nlimits: {max-terminations: 2}\nhooks: [{command: [" + hook + "], events: [hold]}]\n"
	require.NoError(t, os.WriteFile(policy, []byte(text), 0o600))
	r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "a", "--interval", "100ms", "--cycles", "3", "--policy", policy, "--audit-log", log)
	require.Equal(t, command.ExitHeld, r.Code, r.Err)
	require.Empty(t, host.Actions())
	require.Equal(t, 1, strings.Count(r.Err, "Safety limit exceeded: "), r.Err)
	for path, word := range map[string]string{hook + ".events": `"event":"hold"`, log: `"kind":"held"`} {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, 3, strings.Count(string(content), word), path)
	}
}

// A genv that crashes on a host is named with the first line of its crash, over a
// real sshd and sudo.
func TestACrashOnAHost(t *testing.T) {
	program := filepath.Join(t.TempDir(), "genv")
	script := "#!/bin/sh\necho 'panic: runtime error: index out of range [3] with length 3\n\ngoroutine 1 [running]:\nmain.main()' >&2\nexit 2\n"
	require.NoError(t, os.WriteFile(program, []byte(script), 0o755))
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: program})
	for _, name := range []string{"devices", "enforce"} {
		args := []string{"remote", name, "-F", f.SSHConfig(), "-H", "gpu-01"}
		if name == "enforce" {
			args = append(args, "--interval", "0", "--dry-run", "--exit-code")
		}
		r := genvtest.Run(t, args...)
		require.Equal(t, command.ExitNoneLeft, r.Code, r.Err)
		require.Regexp(t, `command-failed \(1\)\n.*    gpu-01: genv crashed there: panic: runtime error: index out of range \[3\] with length 3\n`, r.Err)
	}
}
