package fleet_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/testfleet"
	simulated "github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// TestOneSickGPUHidesNothing: whatever nvidia-smi says about GPU 1, the others are shown and enforced, and what runs on
// GPU 1 is left alone, also where rules don't apply to it because it can't be attached. Each host is a row.
func TestOneSickGPUHidesNothing(t *testing.T) {
	for fault, state := range map[simulated.Fault]gpus.State{
		simulated.Lost: gpus.Failed, simulated.LostBetween: gpus.Failed, simulated.LostStderr: gpus.Failed, simulated.Gap: gpus.Failed,
		simulated.OffBus: gpus.Failed, simulated.NeedsReset: gpus.Failed, simulated.Broken: gpus.Failed,
		simulated.Partial: gpus.Busy, // it is judged: its memory is known
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", GPUs: 3}}, Genv: genvtest.Program(t)})
			h := f.Host("gpu-01")
			healthy := genvtest.StartOutside(t, h, "bob", testfleet.Use{Device: 0, MiB: 10})
			sick := genvtest.StartOutside(t, h, "bob", testfleet.Use{Device: 1, MiB: 10})
			require.NoError(t, h.ChangeDriver(func(d *simulated.Driver) { d.Devices[1].Fault = fault }))

			r := genvtest.Run(t, "remote", "gpus", "-F", f.SSHConfig(), "-H", "gpu-01", "--format", "json").OK(t)
			document := genvtest.Decode[live.GPUs](t, r)
			list := document.Hosts[0].GPUs
			require.Len(t, list, 3)
			require.Equal(t, []gpus.State{gpus.Busy, state, gpus.Free}, []gpus.State{list[0].State, list[1].State, list[2].State})
			require.NotEmpty(t, list[1].Problem)

			r = genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "0", "--non-env-processes").OK(t)
			require.False(t, healthy.Running(), r.Out)
			require.Equal(t, state == gpus.Failed, sick.Running(), r.Out)
		})
	}
}

// TestAllGPUsAreLost: an old driver says only that one is lost, and root's genv knows which there are.
func TestAllGPUsAreLost(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", GPUs: 2}}, Genv: genvtest.Program(t)})
	remote := func(args ...string) genvtest.Result {
		return genvtest.Run(t, append(append([]string{"remote"}, args...), "-F", f.SSHConfig(), "-H", "gpu-01")...)
	}
	require.NoError(t, f.Host("gpu-01").WriteProc())
	remote("enforce", "--interval", "0").OK(t)
	require.NoError(t, f.Host("gpu-01").ChangeDriver(func(d *simulated.Driver) { d.Devices[1].Fault = simulated.LostAll }))
	r := remote("gpus").OK(t)
	require.Contains(t, r.Out, "0 of 2 GPUs are free on 1 host; 2 have failed\n")
	require.Contains(t, r.Out, "Unable to determine the device handle")
	remote("enforce", "--interval", "0").OK(t)
}

// TestWaitWithSickGPUs: failed ones don't exist for it, attach and run, and those of which all is known come first.
func TestWaitWithSickGPUs(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", GPUs: 3}, {Name: "bare", GPUs: 3, Rights: sshd.NoGenv}}, Genv: genvtest.Program(t)})
	for _, h := range f.Hosts() {
		for want, faults := range map[string][3]simulated.Fault{
			"1 free GPU: 2": {simulated.Lost, simulated.Partial},
			"2 free GPUs: 2,1\nWarning: GPU 1 of %s may not work well: the driver reports utilization, temperature, power: Unknown Error": {simulated.Lost, simulated.Partial},
			"3 free GPUs: no host has 3 GPUs, free or not": {simulated.NeedsReset},
		} {
			require.NoError(t, h.ChangeDriver(func(d *simulated.Driver) {
				for i, fault := range faults {
					d.Devices[i].Fault = fault
				}
			}))
			r := genvtest.Run(t, "remote", "wait", "-F", f.SSHConfig(), "-H", h.Name, "--gpus", want[:1], "--within", "1m")
			_, want, _ = strings.Cut(want, ": ")
			require.Contains(t, strings.TrimPrefix(r.Out, h.Name+" ")+r.Err, strings.ReplaceAll(want, "%s", h.Name))
		}
	}
	require.NoError(t, f.Host("gpu-01").ChangeDriver(func(d *simulated.Driver) {
		d.Devices[0].Fault, d.Devices[1].Fault, d.Devices[2].Fault = simulated.Lost, simulated.Partial, ""
	}))
	for _, gives := range []string{`genv run --gpus %s true`, `eval "$(genv shell --init --shell bash)"; genv activate --gpus %s`} {
		for n, want := range map[string]string{
			"1": "^Attached GPU 2 .*\n$",
			"2": "^Attached GPUs 1, 2 .*\nWarning: GPU 1 may not work well: .*\n$",
			"3": `available \(2\)`, // of two or three, as the lost one was registered before or not
		} {
			out, _ := exec.Command("ssh", "-F", f.SSHConfig(), "-l", "alice", "gpu-01", "bash -c '"+fmt.Sprintf(gives, n)+"'").CombinedOutput()
			require.Regexp(t, want, string(out))
		}
	}
	require.NoError(t, f.Host("gpu-01").ChangeDriver(func(d *simulated.Driver) {
		for i := range d.Devices {
			d.Devices[i].Fault, d.Devices[i].LeakedMiB = "", 70400
		}
	}))
	r := genvtest.Run(t, "remote", "wait", "-F", f.SSHConfig(), "-H", "gpu-01", "--within", "1s", "--interval", "1s")
	require.Contains(t, r.Err, "no host had 1 free GPU within 1s", "it is in use")
}

// TestWarningsOfTheDriver: the rows count, although nvidia-smi exits with 14.
func TestWarningsOfTheDriver(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "ours", GPUs: 2}, {Name: "bare", GPUs: 2, Rights: sshd.NoGenv}}, Genv: genvtest.Program(t)})
	job := genvtest.StartOutside(t, f.Host("ours"), "bob", testfleet.Use{Device: 0, MiB: 10})
	const warning = "WARNING: infoROM is corrupted at gpu 0000:01:00.0"
	for _, h := range f.Hosts() {
		require.NoError(t, h.ChangeDriver(func(d *simulated.Driver) { d.Warnings = []string{warning} }))
	}
	r := genvtest.Run(t, "remote", "gpus", "-F", f.SSHConfig(), "-H", "ours,bare").OK(t)
	require.Contains(t, r.Out, "3 of 4 GPUs are free on 2 hosts\n")
	r = genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "ours", "--interval", "0", "--non-env-processes").OK(t)
	require.Contains(t, r.Err, warning)
	require.False(t, job.Running())
}

// TestWhatNvidiaSMIPrintedOnAHostWithoutGenv is in the error, although it is on stdout.
func TestWhatNvidiaSMIPrintedOnAHostWithoutGenv(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "bare", Rights: sshd.NoGenv, Fault: simulated.FaultMismatch}}, Genv: genvtest.Program(t)})
	r := genvtest.Run(t, "remote", "gpus", "-F", f.SSHConfig(), "-H", "bare")
	require.NotZero(t, r.Code)
	require.Contains(t, r.Err, "Failed to initialize NVML: Driver/library version mismatch")
}

// TestUnifiedMemory: a GPU without memory of its own is attached without a capacity, and judged without memory.
func TestUnifiedMemory(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gb10", GPUs: 1}}, Genv: genvtest.Program(t)})
	h := f.Host("gb10")
	require.NoError(t, h.ChangeDriver(func(d *simulated.Driver) { d.Devices[0].Unified = true }))
	remote := func(args ...string) genvtest.Result {
		return genvtest.Run(t, append(append([]string{"remote"}, args...), "-F", f.SSHConfig(), "-H", "gb10")...).OK(t)
	}
	require.Contains(t, remote("gpus").Out, "1 of 1 GPU is free")
	devices := genvtest.Devices(t, h)
	require.True(t, devices[0].Unified)
	require.Positive(t, devices[0].TotalMemory.Bytes(), "genv 1.4.3 needs a number")

	env := genvtest.Activate(t, h, testfleet.Environment{User: "alice", Config: snapshot.EnvConfig{GPUMemory: snapshot.MiB(1)}})
	require.NoError(t, h.Attach(env, 0, time.Now()))
	job := genvtest.StartJob(t, h, testfleet.Job{User: "alice", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	stranger := genvtest.StartOutside(t, h, "bob", testfleet.Use{Device: 0, MiB: 10})
	r := remote("enforce", "--interval", "0", "--non-env-processes")
	require.True(t, job.Running(), r.Out)
	require.False(t, stranger.Running(), r.Out)
	require.Contains(t, r.Out+r.Err, "GPU 0 shares the memory of its machine, so env-memory does not apply to environment "+fmt.Sprint(env.EID))
	require.Contains(t, remote("gpus", "--format", "json").Out, `"memory_total_bytes":null`)
}
