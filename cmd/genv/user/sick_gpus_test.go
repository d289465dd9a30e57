package user_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	simulated "github.com/seed-3119e985/genv/remote/testfleet/gpus"
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
		require.Equal(t, genvtest.Result{Out: "0,2\n", Err: "Attached GPUs: 0,2\n"}, u.run("genv", "run", "--gpus", "2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"), fault)
		r := u.run("genv", "run", "--gpus", "3", "true")
		require.NotZero(t, r.Code)
		require.Contains(t, r.Err, "Requested more devices (3) than currently available (2); GPU 1 has failed and is given to nobody")
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
	require.Equal(t, genvtest.Result{Err: "Attached GPUs: 1\n"}, s.me().run("genv", "run", "--gpus", "1", "true"))
	require.Contains(t, s.me().run("genv", "run", "--gpus", "2", "true").Err, "GPU 0: the driver reports utilization, temperature, power: Unknown Error")
}

// TestNoCapacityOfUnifiedMemory: a GPU that shares the memory of its machine is given out as a
// whole.
func TestNoCapacityOfUnifiedMemory(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.devices(1)
	s.sicken(func(d *simulated.Driver) { d.Devices[0].Unified = true })
	u := s.me()
	require.Equal(t, genvtest.Result{Err: "Attached GPUs: 0\n"}, u.run("genv", "run", "--gpus", "1", "true"))
	r := u.run("genv", "run", "--gpus", "1", "--gpu-memory", "4g", "true")
	require.NotZero(t, r.Code)
	require.Contains(t, r.Err, "GPU 0 shares the memory of its machine and has no capacity of its own: attach it without --gpu-memory")
	require.Contains(t, u.run("genv", "devices", "--format", "json").Out, `"total_memory_bytes":null`)
}
