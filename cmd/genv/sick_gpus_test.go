package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/testfleet"
	simulated "github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// TestOneSickGPUHidesNothing: whatever nvidia-smi says about GPU 1, the others are shown and
// enforced, and what runs on GPU 1 is left alone, also where rules don't apply to it because it
// can't be attached. Each host is a row.
func TestOneSickGPUHidesNothing(t *testing.T) {
	for fault, state := range map[simulated.Fault]gpus.State{
		simulated.Lost: gpus.Failed, simulated.LostBetween: gpus.Failed, simulated.LostStderr: gpus.Failed, simulated.Gap: gpus.Failed,
		simulated.OffBus: gpus.Failed, simulated.NeedsReset: gpus.Failed, simulated.Broken: gpus.Failed,
		simulated.Partial: gpus.Busy, // it is judged: its memory is known
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", GPUs: 3}}, Genv: genvProgram(t)})
			h := f.Host("gpu-01")
			healthy, err := h.StartJob(testfleet.Job{User: "bob", Env: outside, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
			require.NoError(t, err)
			sick, err := h.StartJob(testfleet.Job{User: "bob", Env: outside, Uses: []testfleet.Use{{Device: 1, MiB: 10}}})
			require.NoError(t, err)
			require.NoError(t, h.ChangeDriver(func(d *simulated.Driver) { d.Devices[1].Fault = fault }))

			r := genv(t, "remote", "gpus", "-F", f.SSHConfig(), "-H", "gpu-01", "--format", "json")
			require.Zero(t, r.code, r.err)
			var document live.GPUs
			require.NoError(t, json.Unmarshal([]byte(r.out), &document))
			list := document.Hosts[0].GPUs
			require.Len(t, list, 3)
			require.Equal(t, []gpus.State{gpus.Busy, state, gpus.Free}, []gpus.State{list[0].State, list[1].State, list[2].State})
			require.NotEmpty(t, list[1].Problem)

			r = genv(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "0", "--non-env-processes")
			require.Zero(t, r.code, r.err)
			require.False(t, healthy.Running(), r.out)
			require.Equal(t, state == gpus.Failed, sick.Running(), r.out)
		})
	}
}

// TestWarningsOfTheDriver: the rows count, although nvidia-smi exits with 14.
func TestWarningsOfTheDriver(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "ours", GPUs: 2}, {Name: "bare", GPUs: 2, Rights: sshd.NoGenv}}, Genv: genvProgram(t)})
	job, err := f.Host("ours").StartJob(testfleet.Job{User: "bob", Env: outside, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	require.NoError(t, err)
	const warning = "WARNING: infoROM is corrupted at gpu 0000:01:00.0"
	for _, h := range f.Hosts() {
		require.NoError(t, h.ChangeDriver(func(d *simulated.Driver) { d.Warnings = []string{warning} }))
	}
	r := genv(t, "remote", "gpus", "-F", f.SSHConfig(), "-H", "ours,bare")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "3 of 4 GPUs are free on 2 hosts\n")
	r = genv(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "ours", "--interval", "0", "--non-env-processes")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, warning)
	require.False(t, job.Running())
}

// TestWhatNvidiaSMIPrintedOnAHostWithoutGenv is in the error, although it is on stdout.
func TestWhatNvidiaSMIPrintedOnAHostWithoutGenv(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "bare", Rights: sshd.NoGenv, Fault: simulated.FaultMismatch}}, Genv: genvProgram(t)})
	r := genv(t, "remote", "gpus", "-F", f.SSHConfig(), "-H", "bare")
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "Failed to initialize NVML: Driver/library version mismatch")
}

// TestUnifiedMemory: a GPU without memory of its own is attached without a capacity, and judged
// without memory.
func TestUnifiedMemory(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gb10", GPUs: 1}}, Genv: genvProgram(t)})
	h := f.Host("gb10")
	require.NoError(t, h.ChangeDriver(func(d *simulated.Driver) { d.Devices[0].Unified = true }))
	remote := func(args ...string) result {
		r := genv(t, append(append([]string{"remote"}, args...), "-F", f.SSHConfig(), "-H", "gb10")...)
		require.Zero(t, r.code, r.err)
		return r
	}
	require.Contains(t, remote("gpus").out, "1 of 1 GPU is free")
	devices, err := h.Devices()
	require.NoError(t, err)
	require.True(t, devices[0].Unified)
	require.Positive(t, devices[0].TotalMemory.Bytes(), "genv 1.4.3 needs a number")

	env, err := h.Activate(testfleet.Environment{User: "alice", Config: snapshot.EnvConfig{GPUMemory: snapshot.MiB(1)}})
	require.NoError(t, err)
	require.NoError(t, h.Attach(env, 0, time.Now()))
	job, err := h.StartJob(testfleet.Job{User: "alice", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	require.NoError(t, err)
	stranger, err := h.StartJob(testfleet.Job{User: "bob", Env: outside, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	require.NoError(t, err)
	r := remote("enforce", "--interval", "0", "--non-env-processes")
	require.True(t, job.Running(), r.out)
	require.False(t, stranger.Running(), r.out)
	require.Contains(t, r.out+r.err, "device 0 shares the memory of its machine, so env-memory does not apply to environment "+fmt.Sprint(env.EID))
	require.Contains(t, remote("gpus", "--format", "json").out, `"memory_total_bytes":null`)
}

// sicken changes what the driver of the station says.
func (s *station) sicken(change func(d *simulated.Driver)) {
	s.t.Helper()
	driver, err := simulated.Read(s.path("gpus.json"))
	require.NoError(s.t, err)
	change(&driver)
	require.NoError(s.t, driver.Write(s.path("gpus.json")))
}

// TestFailedGPUsAreGivenToNobody: not by number, and not by index either.
func TestFailedGPUsAreGivenToNobody(t *testing.T) {
	t.Parallel()
	for _, fault := range []simulated.Fault{simulated.Lost, simulated.LostStderr, simulated.Gap, simulated.NeedsReset} {
		s := newStation(t)
		s.devices(3)
		u := s.me()
		require.Zero(t, u.run("genv", "devices").code, "GPU 1 is registered")
		s.sicken(func(d *simulated.Driver) { d.Devices[1].Fault = fault })
		require.Equal(t, result{out: "0,2\n", err: "Attached GPUs: 0,2\n"}, u.run("genv", "run", "--gpus", "2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"), fault)
		r := u.run("genv", "run", "--gpus", "3", "true")
		require.NotZero(t, r.code)
		require.Contains(t, r.err, "Requested more devices (3) than currently available (2); GPU 1 has failed and is given to nobody")
		shell := u.open("bash")
		require.Equal(t, said{}, shell.say("genv activate"))
		for _, line := range []string{"genv attach --index 1", "genv attach --index 1 --allow-over-subscription", "genv devices attach --eid $GENV_ENVIRONMENT_ID --index 1"} {
			require.Contains(t, shell.sayAll(line).text, "GPU 1 has failed and is given to nobody", line)
		}
	}
}

// TestUnknownValuesAreSaid: a GPU of which some values are error texts is given out last.
func TestUnknownValuesAreSaid(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.devices(2)
	s.sicken(func(d *simulated.Driver) { d.Devices[0].Fault = simulated.Partial })
	require.Equal(t, result{err: "Attached GPUs: 1\n"}, s.me().run("genv", "run", "--gpus", "1", "true"))
	require.Contains(t, s.me().run("genv", "run", "--gpus", "2", "true").err, "GPU 0: the driver reports utilization, temperature, power: Unknown Error")
}

// TestNoCapacityOfUnifiedMemory: a GPU that shares the memory of its machine is given out as a
// whole.
func TestNoCapacityOfUnifiedMemory(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.devices(1)
	s.sicken(func(d *simulated.Driver) { d.Devices[0].Unified = true })
	u := s.me()
	require.Equal(t, result{err: "Attached GPUs: 0\n"}, u.run("genv", "run", "--gpus", "1", "true"))
	r := u.run("genv", "run", "--gpus", "1", "--gpu-memory", "4g", "true")
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "GPU 0 shares the memory of its machine and has no capacity of its own: attach it without --gpu-memory")
	require.Contains(t, u.run("genv", "devices", "--format", "json").out, `"total_memory_bytes":null`)
}
