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

// TestOneMachineUnderSeveralNames, over a real sshd: an alias of ssh_config, a full name, the address and another login
// are found out in the first cycle, and an honest user keeps devices and jobs.
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

	env := genvtest.Activate(t, one, testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0, 1}})
	job := genvtest.StartJob(t, one, testfleet.Job{User: "alice", Env: append(genvtest.Outside, env.Var()), Uses: []testfleet.Use{{Device: 0, MiB: 10}, {Device: 1, MiB: 10}}})
	rogue := genvtest.StartOutside(t, one, "bob", testfleet.Use{Device: 5, MiB: 10})
	want := []controller.Duplicate{}
	for _, name := range []string{"first", "gpu-01.lab.example", one.Address} {
		want = append(want, controller.Duplicate{Name: snapshot.Hostname(name), SameAs: "gpu-01"})
	}

	log := filepath.Join(t.TempDir(), "audit.jsonl")
	r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", hosts, "--interval", "50ms", "--cycles", "3", "--non-env-processes",
		"--max-devices-per-user", "2", "--format", "json", "--audit-log", log).OK(t)
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
		require.LessOrEqual(t, len(document.Orders), 1)
	}
	record := genvtest.Read(t, log)
	require.Equal(t, 3, strings.Count(record, `"kind":"duplicate"`))
	require.Equal(t, 1, strings.Count(record, `"kind":"report"`), "it is sent once")

	t.Run("devices", func(t *testing.T) {
		r := genvtest.Run(t, "remote", "devices", "-F", f.SSHConfig(), "-H", hosts).OK(t)
		require.Contains(t, r.Out, "\nTotal 16 devices with 14 available on 2 hosts\n")
		require.Equal(t, 3, strings.Count(r.Err, "are one machine"), r.Err)
		r = genvtest.Run(t, "remote", "devices", "-F", f.SSHConfig(), "-H", hosts, "--format", "json")
		require.Equal(t, want, genvtest.Decode[fleet.DevicesDocument](t, r).Duplicates)
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
		require.Equal(t, 1, genvtest.Decode[fleet.EnvsDocument](t, r).Total)
		requireNameThatAnswers(t, f)
	})
	t.Run("hosts of their own stay such", func(t *testing.T) {
		r := genvtest.Run(t, "remote", "devices", "-F", f.SSHConfig(), "-H", "gpu-01,gpu-02")
		require.Contains(t, r.Out, "on 2 hosts\n")
		require.Empty(t, r.Err)
	})
}

// requireNameThatAnswers looks at what takes sudo under two names of one machine, of which one may not.
func requireNameThatAnswers(t *testing.T, f *sshd.Fleet) {
	t.Helper()
	alone := genvtest.Run(t, "remote", "devices", "--processes", "-F", f.SSHConfig(), "-H", "gpu-01", "--format", "json").OK(t)
	r := genvtest.Run(t, "remote", "devices", "--processes", "-F", f.SSHConfig(), "-H", "bob,gpu-01", "--format", "json").Exits(t, command.ExitSomeFailed)
	one, both := genvtest.Decode[fleet.DevicesDocument](t, alone), genvtest.Decode[fleet.DevicesDocument](t, r)
	require.NotZero(t, one.Total)
	require.Equal(t, one.Total, both.Total, "the name that answers serves")
}

// TestTwoAddresses: two addresses lead to one machine only if one shows the token that the other was given, in
// root's folder. What a host shows of itself, its boot, host key and state folder, proves nothing.
func TestTwoAddresses(t *testing.T) {
	one, two := []snapshot.Hostname{"gpu-01"}, []snapshot.Hostname{"gpu-01", "gpu-02"}
	for _, tt := range []struct {
		name string
		same func(h *sshd.Host) []string // the folders of gpu-01 that are those of gpu-02
		want []snapshot.Hostname
	}{
		{"of one machine", func(h *sshd.Host) []string { return []string{h.State, h.Root()} }, one},
		{"a hostile host that shows the identity of another one", func(h *sshd.Host) []string { return []string{h.State} }, two},
		{"several state folders on one machine", func(h *sshd.Host) []string { return []string{h.Root()} }, two},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02"), Genv: genvtest.Program(t)})
			honest := f.Host("gpu-02")
			genvtest.Activate(t, honest, testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0}})
			theirs := tt.same(honest)
			for i, path := range tt.same(f.Host("gpu-01")) {
				require.NoError(t, os.RemoveAll(path))
				require.NoError(t, os.Symlink(theirs[i], path))
			}
			rogue := genvtest.StartOutside(t, honest, "bob", testfleet.Use{Device: 5, MiB: 10})
			r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "gpu-01,gpu-02", "--interval", "50ms", "--cycles", "2", "--non-env-processes", "--format", "json").OK(t)
			var document enforcement.CycleDocument
			for line := range strings.Lines(r.Out) {
				require.NoError(t, json.Unmarshal([]byte(line), &document))
				require.Equal(t, len(tt.want), document.Hosts, r.Out)
				require.Len(t, document.Duplicates, 2-len(tt.want))
			}
			require.Equal(t, len(tt.want) == 1, rogue.Running(), "gpu-02 is judged unless it is proved to be gpu-01, where other GPUs are simulated")
		})
	}
}
