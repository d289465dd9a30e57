package enforcement_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// peopled is a host of four GPUs with these processes.
func peopled(boot string, processes ...snapshot.Process) *snapshot.Snapshot {
	s := &snapshot.Snapshot{BootID: boot, Processes: processes}
	for i := range 4 {
		s.Devices = append(s.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(81559)})
	}
	return s
}

// Who is not in an environment, and what turning the rule on would end: of each user on all hosts, after
// warnings. Exempt people, and those in their environments, aren't named.
func TestDryRunByUser(t *testing.T) {
	t.Parallel()
	process := func(pid snapshot.PID, user string, uid snapshot.UID, devices ...snapshot.DeviceIndex) snapshot.Process {
		p := snapshot.Process{PID: pid, Start: snapshot.StartTime(pid), Username: snapshot.Username(user), UID: &uid}
		for _, index := range devices {
			p.Usage = append(p.Usage, snapshot.DeviceUsage{Index: index, Memory: snapshot.MiB(10)})
		}
		return p
	}
	carols := process(12, "carol", 1003, 3)
	carols.EID = "7"
	first := peopled("1", process(10, "bob", 1002, 0, 1), process(11, "bob", 1002, 1), carols, process(13, "eve", 1005, 2))
	first.Environments = []snapshot.Environment{{EID: "7", UID: 1003, Username: "carol"}, {EID: "8", UID: 1002, Username: "bob"}}
	first.Devices[2].Attachments = []snapshot.Attachment{{EID: "8"}}
	second := peopled("2", process(10, "bob", 1002, 0), process(20, "", 1004, 1), snapshot.Process{PID: 21, Start: 21, Usage: []snapshot.DeviceUsage{{Index: 1}}})
	hosts := []*genvhost.Host{genvhost.New(first), genvhost.New(second)}
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "gpu-01", Handler: hosts[0]}, &inprocess.Server{Name: "gpu-02", Handler: hosts[1]})
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	run := func(text string, args ...string) genvtest.Result {
		require.NoError(t, os.WriteFile(policy, []byte(text), 0o600))
		return genvtest.Run(t, append([]string{"remote", "enforce", "-F", f.SSHConfig(), "-H", "gpu-01,gpu-02", "--policy", policy, "--dry-run", "--interval", "0", "--by", "user"}, args...)...)
	}
	const warned = "defaults: {warn: 1d, max-devices-per-user: 0}\nexempt: {users: [eve]}\n"
	r := run(warned, "--non-env-processes")
	require.Zero(t, r.Code, r.Err)
	require.Equal(t, `USER      PROCESSES  GPUS  WOULD-TERMINATE  WOULD-DETACH  RULES                                   HOSTS
-         1          1     1                0             non-env-processes                       gpu-02
bob       3          4     3                1             max-devices-per-user,non-env-processes  gpu-[01-02]
carol     1          1     1                0             env-devices,max-devices-per-user        gpu-01
uid 1004  1          1     1                0             non-env-processes                       gpu-02
`, r.Out)

	require.Contains(t, r.Err, "2 hosts answered, 8 findings: 6 processes would end, 1 GPU would be detached, after a warning\n")

	r = run(warned+"limits: {max-terminations-per-host: 1}\n", "--non-env-processes", "--format", "json")
	var d enforcement.CycleDocument
	require.NoError(t, json.Unmarshal([]byte(r.Out), &d))
	require.Len(t, d.ByUser, 4)
	bob, err := json.Marshal(d.ByUser[1])
	require.NoError(t, err)
	require.JSONEq(t, `{"user": "bob", "rules": ["max-devices-per-user", "non-env-processes"], "hosts": ["gpu-01", "gpu-02"],
		"processes": 3, "gpus": 4, "would_terminate": 3, "would_detach": 1}`, string(bob))
	require.NotEmpty(t, d.Findings)

	held := run("limits: {max-terminations-per-user: 1}\n", "--non-env-processes", "--no-env-devices")
	require.Equal(t, command.ExitHeld, held.Code)
	require.Contains(t, held.Out, "\nbob       3          3     1                0  ")

	require.Contains(t, held.Err, "2 hosts answered, 6 findings: 4 processes would end\n", "not what safety limits hold back")

	caps := run("caps: [{name: one, gpus: 1}, {memory: 1g}]\ndefaults: {non-env-processes: count}\n")
	require.Equal(t, `USER   PROCESSES  GPUS  WOULD-TERMINATE  WOULD-DETACH  RULES        CAPS             HOSTS
bob    2          3     2                1             caps         one: 4 of 1 GPU  gpu-01
carol  1          1     1                0             env-devices                   gpu-01
`, caps.Out)

	idle := run("defaults: {idle: {after: 2h}}\n")
	require.Contains(t, idle.Err, "; what is idle isn't known after one look; ")

	quiet := run("exempt: {hosts: [\"gpu-[01-02]\"]}\n")
	require.Empty(t, quiet.Out)
	require.Contains(t, quiet.Err, "2 hosts answered, 0 findings: nothing would be done\n")
	for _, host := range hosts {
		require.Empty(t, host.Actions())
	}
}

func TestByUserIsForOneDryRun(t *testing.T) {
	for want, args := range map[string][]string{
		"--by is about what would be done now: it needs --dry-run and --interval 0": {"--by", "user", "--interval", "0"},
		"it needs --dry-run and --interval 0":                                       {"--by", "user", "--dry-run"},
		`--by "host": write user`:                                                   {"--by", "host", "--dry-run", "--interval", "0"},
	} {
		r := genvtest.Run(t, append([]string{"remote", "enforce", "-H", "a"}, args...)...)
		require.Equal(t, command.ExitFailed, r.Code)
		require.Contains(t, r.Err, want)
	}
}
