package enforcement_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestOneMachineUnderSeveralNames, over a real sshd: an alias of ssh_config, a
// full name, the address and another login are found out in the first cycle, and
// an honest user keeps devices and jobs.
func TestOneMachineUnderSeveralNames(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02"), Genv: genvtest.Program(t)})
	one := f.Host("gpu-01")
	config, err := os.ReadFile(f.SSHConfig())
	require.NoError(t, err)
	more := fmt.Sprintf("\nHost first gpu-01.lab.example\n\tHostName %s\n\tUser %s\nHost %s\n\tUser %s\nHost bob\n\tHostName %s\n\tUser bob\n",
		one.Address, one.User, one.Address, one.User, one.Address)
	require.NoError(t, os.WriteFile(f.SSHConfig(), append(config, more...), 0o644))
	const named = "gpu-01,first,gpu-01.lab.example,%s,gpu-02"
	hosts := fmt.Sprintf(named, one.Address)

	env, err := one.Activate(testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0, 1}})
	require.NoError(t, err)
	job, err := one.StartJob(testfleet.Job{User: "alice", Env: append(genvtest.Outside, env.Var()), Uses: []testfleet.Use{{Device: 0, MiB: 10}, {Device: 1, MiB: 10}}})
	require.NoError(t, err)
	rogue, err := one.StartJob(testfleet.Job{User: "bob", Env: genvtest.Outside, Uses: []testfleet.Use{{Device: 5, MiB: 10}}})
	require.NoError(t, err)
	want := []controller.Duplicate{}
	for _, name := range []string{"first", "gpu-01.lab.example", one.Address} {
		want = append(want, controller.Duplicate{Name: snapshot.Hostname(name), SameAs: "gpu-01"})
	}

	log := filepath.Join(t.TempDir(), "audit.jsonl")
	r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", hosts, "--interval", "50ms", "--cycles", "3", "--non-env-processes",
		"--max-devices-per-user", "2", "--format", "json", "--audit-log", log)
	require.Zero(t, r.Code, r.Err)
	require.True(t, job.Running())
	require.False(t, rogue.Running())
	require.Equal(t, 1, strings.Count(r.Err, "gpu-01 and first are one machine: it counts once, as gpu-01\n"), r.Err)
	require.Equal(t, 3, strings.Count(r.Err, "are one machine"), r.Err)
	for _, line := range strings.Split(strings.TrimSpace(r.Out), "\n") {
		var document enforcement.CycleDocument
		require.NoError(t, json.Unmarshal([]byte(line), &document))
		require.Equal(t, want, document.Duplicates)
		require.Equal(t, 2, document.Hosts)
		require.Equal(t, 2, document.Answered)
		require.Empty(t, document.Failed)
		require.LessOrEqual(t, len(document.Reports), 1)
	}
	record, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(string(record), `"kind":"duplicate"`))
	require.Equal(t, 1, strings.Count(string(record), `"kind":"report"`), "it is sent once")

	t.Run("devices", func(t *testing.T) {
		r := genvtest.Run(t, "remote", "devices", "-F", f.SSHConfig(), "-H", hosts)
		require.Zero(t, r.Code, r.Err)
		require.Contains(t, r.Out, "\nTotal 16 devices with 14 available on 2 hosts\n")
		require.Equal(t, 3, strings.Count(r.Err, "are one machine"), r.Err)
		r = genvtest.Run(t, "remote", "devices", "-F", f.SSHConfig(), "-H", hosts, "--format", "json")
		var document fleet.DevicesDocument
		require.NoError(t, json.Unmarshal([]byte(r.Out), &document))
		require.Equal(t, want, document.Duplicates)
	})
	t.Run("envs and query", func(t *testing.T) {
		r := genvtest.Run(t, "remote", "envs", "-F", f.SSHConfig(), "-H", hosts)
		require.Contains(t, r.Out, "\nTotal 1 environments on 2 hosts\n")
		r = genvtest.Run(t, "remote", "query", "-F", f.SSHConfig(), "-H", hosts, "--query", "hostname", "eid")
		require.Equal(t, fmt.Sprintf("gpu-01,%s\n", env.EID), r.Out)
	})
	t.Run("another login, which may not sudo", func(t *testing.T) {
		r := genvtest.Run(t, "remote", "envs", "-F", f.SSHConfig(), "-H", "bob,gpu-01", "--format", "json")
		require.Zero(t, r.Code, "looking takes no sudo")
		var document fleet.EnvsDocument
		require.NoError(t, json.Unmarshal([]byte(r.Out), &document))
		require.Equal(t, 1, document.Total)
		requireNameThatAnswers(t, f)
	})
	t.Run("hosts of their own stay such", func(t *testing.T) {
		r := genvtest.Run(t, "remote", "devices", "-F", f.SSHConfig(), "-H", "gpu-01,gpu-02")
		require.Contains(t, r.Out, "on 2 hosts\n")
		require.Empty(t, r.Err)
	})
}

// requireNameThatAnswers looks at what takes sudo under two names of one machine, of
// which one may not.
func requireNameThatAnswers(t *testing.T, f *sshd.Fleet) {
	t.Helper()
	alone := genvtest.Run(t, "remote", "devices", "--processes", "-F", f.SSHConfig(), "-H", "gpu-01", "--format", "json")
	require.Zero(t, alone.Code)
	r := genvtest.Run(t, "remote", "devices", "--processes", "-F", f.SSHConfig(), "-H", "bob,gpu-01", "--format", "json")
	require.Equal(t, command.ExitSomeFailed, r.Code)
	var one, both fleet.DevicesDocument
	require.NoError(t, json.Unmarshal([]byte(alone.Out), &one))
	require.NoError(t, json.Unmarshal([]byte(r.Out), &both))
	require.NotZero(t, one.Total)
	require.Equal(t, one.Total, both.Total, "the name that answers serves")
}

// TestTwoAddressesOfOneMachine: one host key on two addresses is a machine with
// two addresses, if the machine says so.
func TestTwoAddressesOfOneMachine(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02"), Genv: genvtest.Program(t)})
	_, err := f.Host("gpu-01").Activate(testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0}})
	require.NoError(t, err)
	require.NoError(t, os.Symlink(f.Host("gpu-01").State, f.Host("gpu-02").State), "its other address")
	r := genvtest.Run(t, "remote", "envs", "-F", f.SSHConfig(), "-H", "gpu-01,gpu-02")
	require.Zero(t, r.Code, r.Err)
	require.Contains(t, r.Out, "\nTotal 1 environments on 1 hosts\n")
	require.Equal(t, "gpu-01 and gpu-02 are one machine: it counts once, as gpu-01\n", r.Err)
}
