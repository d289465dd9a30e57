package user_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	simulated "github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

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
		require.Zero(t, u.run("genv", "devices").Code, "GPU 1 is registered")
		s.sicken(func(d *simulated.Driver) { d.Devices[1].Fault = fault })
		require.Equal(t, genvtest.Result{Out: "0,2\n", Err: "Attached GPUs 0, 2 (H100 80GB HBM3)\n"}, u.run("genv", "run", "--gpus", "2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"), fault)
		r := u.run("genv", "run", "--gpus", "3", "true")
		require.NotZero(t, r.Code)
		require.Contains(t, r.Err, "Requested more devices (3) than currently available (2); GPU 1 has failed and is given to no user")
		shell := u.open("bash")
		require.Equal(t, said{}, shell.say("genv activate"))
		for _, line := range []string{"genv attach --index 1", "genv attach --index 1 --allow-over-subscription", "genv devices attach --eid $GENV_ENVIRONMENT_ID --index 1"} {
			require.Contains(t, shell.sayAll(line).text, "GPU 1 has failed and is given to no user", line)
		}
	}
}

// TestGPUsThatCUDACannotUseWhole: free means that CUDA can use it whole, and a GPU with a screen is for those whom no other
// is left.
func TestGPUsThatCUDACannotUseWhole(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.devices(6)
	u := s.me()
	s.sicken(func(d *simulated.Driver) {
		d.Devices[0].MIGEnabled = true
		d.Devices[1].ComputeMode = "Prohibited"
		d.Devices[2].MIG = []simulated.MIG{{Profile: "1g.10gb", UUID: "MIG-a"}}
		d.Devices[3].Display, d.Devices[3].TotalMiB = true, 4096
	})
	listed := u.run("genv", "gpus").Out
	require.Regexp(t, `(?m)^0 .* unusable .* it is in MIG mode and has no instance\n1 .* unusable .* its compute mode is Prohibited\n2 .* mig .*\n3 .* free `, listed)
	require.Contains(t, listed, "3 of 6 GPUs are free; 2 are unusable\n")
	require.Regexp(t, `^GPU .*\n3 .*\n4 .*\n5 .*\n\n`, u.run("genv", "gpus", "--free").Out)
	environment := func(args ...string) string {
		return u.run(append(append([]string{"genv", "run", "-q"}, args...), "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")...).Out
	}
	require.Equal(t, "4\n", environment("--gpus", "1"))
	require.Equal(t, "4,5\n", environment("--gpus", "2"))
	require.Equal(t, "3,4,5\n", environment("--gpus", "3"))
	r := u.run("genv", "run", "--gpus", "4", "true")
	require.NotZero(t, r.Code)
	require.Contains(t, r.Err, "Requested more devices (4) than currently available (3); GPU 0 is unusable and is given to no user: `genv gpus` says why; GPU 1 is unusable")
	require.Contains(t, r.Err, "GPU 2 is in MIG mode: `genv attach --mig` attaches its instances")
	shell := u.open("bash")
	require.Equal(t, said{text: "Attached GPU 4 (H100 80GB HBM3)\n"}, shell.sayAll("genv activate --gpus 1"))
	for index, why := range []string{"GPU 0 is unusable and is given to no user: `genv gpus` says why; GPU 0: it is in MIG mode and has no instance", "; GPU 1: its compute mode is Prohibited\n", "GPU 2 is in MIG mode"} {
		require.Contains(t, shell.sayAll(fmt.Sprintf("genv attach --index %d -o", index)).text, why)
	}
	require.Contains(t, shell.sayAll("genv attach --mig 1g.10gb").text, "Attached GPUs 2, 4 (H100 80GB HBM3)")
}

// TestUnknownGPUsAreGivenOutLast: after those that others use, and never silently.
func TestUnknownGPUsAreGivenOutLast(t *testing.T) {
	t.Parallel()
	for why, change := range map[string]func(d *simulated.Driver){
		"Warning: GPU 0 may not work well: the driver reports utilization, temperature, power: Unknown Error":                   func(d *simulated.Driver) { d.Devices[0].Fault = simulated.Partial },
		"Warning: it is unknown whether other processes use GPU 0: no visible process accounts for 68.8 GiB of its used memory": func(d *simulated.Driver) { d.Devices[0].LeakedMiB = 70400 },
		"Warning: it is unknown whether other processes use GPU 0: no visible process accounts for 68.7 GiB of its used memory": func(d *simulated.Driver) { // of a process that is no more
			used := int64(70300)
			d.Apps = append(d.Apps, simulated.App{PID: 1 << 30, Foreign: true, Device: 0, UsedMiB: &used})
		},
	} {
		s := newStation(t)
		s.devices(3)
		u := s.me()
		stranger := startSleeper(t, u.uid)
		s.uses(map[snapshot.PID]int{stranger: 1})
		s.sicken(change)
		run := func(args ...string) string { return u.run(append([]string{"genv", "run"}, args...)...).Err }
		const used = "Warning: GPU 1 is in use by process "
		unknown := "\n" + why + "\n"
		require.Equal(t, "Attached GPU 2 (H100 80GB HBM3)\n", run("--gpus", "1", "true"))
		require.Contains(t, run("--gpus", "2", "true"), "Attached GPUs 1, 2 (H100 80GB HBM3)\n"+used)
		require.NotContains(t, run("--gpus", "2", "true"), unknown)
		require.Regexp(t, "^Attached GPUs 0, 1, 2 .*\n"+used+".*"+unknown+"$", run("--gpus", "3", "true"))
		shell := u.open("bash")
		require.Equal(t, said{text: "Attached GPU 2 (H100 80GB HBM3)\n"}, shell.sayAll("genv activate --gpus 1"))
		require.Equal(t, said{text: "Attached GPUs 0, 2 (H100 80GB HBM3)" + unknown}, shell.sayAll("genv attach --index 0"))
	}
}

// TestGPUsWithOtherIndices: GPU 0 is drained, and the others get other indices. What is attached is unknown until the
// shell says that it knows the present ones.
func TestGPUsWithOtherIndices(t *testing.T) {
	proctest.NeedRoot(t)
	t.Parallel()
	s := newStation(t)
	root, shell := s.admin(), s.person("alice", 4001).open("bash")
	require.Zero(t, root.run("genv", "gpus").Code)
	require.Equal(t, said{}, shell.say("genv activate"))
	require.Contains(t, shell.sayAll("genv attach --index 1").text, "Attached GPU 1 (H100 80GB HBM3)")
	const unknown = "what is attached to these GPUs is unknown until it is attached again (genv attach --refresh in its shell)"
	require.NotContains(t, root.run("genv", "gpus").Err, "another GPU")
	s.sicken(func(d *simulated.Driver) { d.Devices[0].Fault = simulated.Drained })
	r := root.run("genv", "gpus")
	require.Regexp(t, `GPU 1 was another GPU since environment \d+ attached it: `+regexp.QuoteMeta(unknown), r.Err)
	require.Regexp(t, `(?m)^0 .* unknown `, r.Out, "a job may run on the GPU that was attached")
	require.Regexp(t, `(?m)^1 .* unknown `, r.Out)
	require.Contains(t, shell.sayAll("genv status").text, unknown)
	require.NotContains(t, shell.sayAll("genv attach --refresh").text, "still")
	require.Equal(t, said{text: "1\n"}, shell.say("echo $CUDA_VISIBLE_DEVICES"))
	require.NotContains(t, shell.sayAll("genv status").text, "refresh")
	r = root.run("genv", "gpus")
	require.NotContains(t, r.Err+r.Out, "unknown")
	require.Regexp(t, `(?m)^0 .* free `, r.Out)
}

// TestNoCapacityOfUnifiedMemory: a GPU that shares the memory of its machine is given out as a whole.
func TestNoCapacityOfUnifiedMemory(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.devices(1)
	s.sicken(func(d *simulated.Driver) { d.Devices[0].Unified = true })
	u := s.me()
	require.Equal(t, genvtest.Result{Err: "Attached GPU 0 (H100 80GB HBM3)\n"}, u.run("genv", "run", "--gpus", "1", "true"))
	r := u.run("genv", "run", "--gpus", "1", "--gpu-memory", "4g", "true")
	require.NotZero(t, r.Code)
	require.Contains(t, r.Err, "GPU 0 shares the memory of its machine and has no capacity of its own: attach it without --gpu-memory")
	require.Contains(t, u.run("genv", "devices", "--format", "json").Out, `"total_memory_bytes":null`)
}

// TestGPUsOfThisHostWithoutRoot: somebody sees the processes of others, with their users.
func TestGPUsOfThisHostWithoutRoot(t *testing.T) {
	s := newStation(t)
	bob := s.person("bob", 60802) // or the test is skipped without root
	require.Zero(t, s.admin().run("genv", "devices").Code)
	driver := simulated.Driver{Devices: simulated.H100s("station", 2)}
	pid, used := startSleeper(t, 0), int64(2048)
	driver.Apps = []simulated.App{{PID: int(pid), UsedMiB: &used}}
	require.NoError(t, driver.Write(s.path("gpus.json")))
	r := bob.run("genv", "gpus")
	require.Zero(t, r.Code, r.Err)
	require.Empty(t, r.Err)
	require.Regexp(t, `(?m)^0    H100 80GB HBM3  busy +2\.0/80 .* root `+pidText(pid)+` 2\.0 GiB sleep`, r.Out)
	require.Contains(t, r.Out, "\n1 of 2 GPUs is free\n")
}
