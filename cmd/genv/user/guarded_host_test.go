package user_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	gpustate "github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// guarded is a station of eight devices on which root has looked, and on which a guard is on in a mode. The minors run
// against the order of the bus. Who sees which devices is in visible, by uid.
func guarded(t *testing.T, mode string, visible map[int][]int) *station {
	t.Helper()
	proctest.NeedRoot(t)
	s := newStation(t)
	s.show(visible)
	require.NoError(t, proctest.Try(gpus.Read(s.path("gpus.json"))).OK(t).WriteProc(s.path("root/proc")))
	s.admin().run("genv", "usage", "snapshot").OK(t)
	s.guard(mode)
	return s
}

// show has nvidia-smi show users these devices.
func (s *station) show(visible map[int][]int) {
	s.t.Helper()
	s.sicken(func(d *gpus.Driver) {
		d.Visible = visible
		for i := range d.Devices {
			d.Devices[i].Minor = new(len(d.Devices) - 1 - i)
		}
	})
}

// guard has the keeper of the guard say which mode is on.
func (s *station) guard(mode string) {
	s.t.Helper()
	path := s.path("root/run/guard.json")
	require.NoError(s.t, os.WriteFile(path, fmt.Appendf(nil, `{"schema":"genv.guard/1","mode":%q}`, mode), 0o600))
	require.NoError(s.t, os.Chmod(path, 0o644))
}

func (s *station) uuids(indices ...int) string {
	s.t.Helper()
	host := proctest.Try(gpus.Read(s.path("gpus.json"))).OK(s.t)
	names := make([]string, len(indices))
	for i, index := range indices {
		names[i] = host.Devices[index].UUID
	}
	return strings.Join(names, ",")
}

func TestAnEnvironmentOnAGuardedHost(t *testing.T) {
	eachShell(t, func(t *testing.T, kind string) {
		s := guarded(t, "enforce", map[int][]int{})
		alice := s.person("alice", 4242)
		shell := alice.open(kind)
		require.Equal(t, said{text: "-1\n"}, shell.say("genv activate; echo $CUDA_VISIBLE_DEVICES"))
		attached := shell.sayAll("genv attach --index 2,5")
		require.Contains(t, attached.text, "Attached GPUs 2, 5 (H100 80GB HBM3)")
		require.Contains(t, attached.text, "unknown whether other processes use GPU 2,5: a guard hid them")
		require.Equal(t, said{text: s.uuids(2, 5) + "\n"}, shell.say("echo $CUDA_VISIBLE_DEVICES"))
		require.Equal(t, said{text: "No devices were found\n", status: "6"}, shell.say("nvidia-smi -L"), "the guard has not yet seen it")
		s.show(map[int][]int{4242: {2, 5}})
		require.Equal(t, 0, strings.Index(shell.say("GENV_BYPASS=1 nvidia-smi -L").text, "GPU 0: "), "the real one numbers them")
		require.Regexp(t, `^GPU 2: .*\nGPU 5: .*\n$`, shell.say("nvidia-smi -L").text)
		require.Equal(t, said{text: "2, " + s.uuids(2) + "\n5, " + s.uuids(5) + "\n"}, shell.say("nvidia-smi --query-gpu=index,uuid --format=csv,noheader"))
		require.Regexp(t, `(?m)^\|   5  NVIDIA H100`, shell.sayAll("nvidia-smi").text)
		require.Equal(t, said{text: s.uuids(5) + "\n"}, shell.say("genv detach --index 2; echo $CUDA_VISIBLE_DEVICES"))
		require.Equal(t, said{text: s.uuids(5) + "\n"}, shell.say("genv run --gpus 1 -q sh -c true; echo $CUDA_VISIBLE_DEVICES"))

		before := proctest.ReadFile(t, filepath.Join(s.state, "devices.json"))
		require.Equal(t, 8, strings.Count(shell.say("genv devices --no-header").text, "\n"))
		list := alice.run("genv", "gpus").OK(t)
		require.Contains(t, list.Out, "; the state of 6 is unknown")
		require.Contains(t, list.Err, "a guard hides GPUs 0,1,3,4,6,7 from this user")
		alice.run("genv", "usage", "snapshot", "--type", "devices").OK(t)
		require.Equal(t, string(before), proctest.ReadText(t, filepath.Join(s.state, "devices.json")), "no device has vanished")
	})
}

// TestAGuardHidesWhatIsFree: of GPUs that a guard hides, what root saw last counts.
func TestAGuardHidesWhatIsFree(t *testing.T) {
	s := guarded(t, "enforce", map[int][]int{})
	s.sicken(func(d *gpus.Driver) {
		d.Devices[0].ComputeMode, d.Devices[1].MIGEnabled, d.Devices[2].Display = "Prohibited", true, true
	})
	require.Contains(t, s.admin().run("genv", "gpus").Out, "6 of 8 GPUs are free; 2 are unusable\n")
	require.Contains(t, s.person("alice", 4242).run("genv", "run", "--gpus", "1", "true").Err, "Attached GPU 3 (H100 80GB HBM3)\n")
}

func TestAShellThatWasActiveBeforeTheGuard(t *testing.T) {
	s := guarded(t, "off", nil)
	alice := s.person("alice", 4242)
	shell := alice.open("bash")
	require.Equal(t, said{text: "1,5\n"}, shell.say("genv activate; genv attach --index 1,5 2>/dev/null; echo $CUDA_VISIBLE_DEVICES"))
	require.NotContains(t, shell.sayAll("genv status").text, "CUDA_VISIBLE_DEVICES", "no guard")
	other := alice.open("bash")
	require.Equal(t, said{}, other.say("genv activate --id "+shell.pid()))
	for _, mode := range []string{"watch", "enforce"} {
		s.guard(mode)
		advice := `CUDA_VISIBLE_DEVICES of this shell is "1,5": since this host has a guard, it has to have UUIDs: run genv attach --refresh`
		require.Contains(t, shell.sayAll("genv status").text, advice)
		require.Contains(t, shell.sayAll("nvidia-smi").text, advice)
		require.NotContains(t, shell.sayAll("nvidia-smi -L").text, advice, "programs read it")
		require.Equal(t, said{text: s.uuids(1, 5) + "\n"}, shell.say("genv attach --refresh; echo $CUDA_VISIBLE_DEVICES"))
		require.NotContains(t, shell.sayAll("genv status").text, "CUDA_VISIBLE_DEVICES")
		for _, change := range []string{"detach", "attach --index 1,5"} {
			require.Equal(t, said{}, other.say("genv "+change))
			require.Contains(t, shell.sayAll("genv status").text, "run genv attach --refresh")
			require.NotContains(t, other.sayAll("genv status").text, "CUDA_VISIBLE_DEVICES")
			require.Equal(t, said{}, shell.say("genv attach --refresh"))
		}
		require.Equal(t, said{}, other.say("genv attach --refresh"))
		s.guard("off")
		require.Equal(t, said{text: "1,5\n"}, shell.say("genv attach --refresh; echo $CUDA_VISIBLE_DEVICES"))
	}
	s.guard("enforce")
	require.Equal(t, genvtest.Result{Out: s.uuids(1, 5) + "\n"}, alice.with("GENV_ENVIRONMENT_ID="+shell.pid(), "GENV_SHELL=1").
		run("sh", "-c", `eval "$(genv shell --reattach)"; echo $CUDA_VISIBLE_DEVICES`), "a shell of 1.4.3")
}

// TestAGuardWithoutRootsList: root's genv has not run since the machine was started. The
// driver's folder still says which device is which.
func TestAGuardWithoutRootsList(t *testing.T) {
	s := guarded(t, "enforce", map[int][]int{4242: {5}})
	alice := s.person("alice", 4242)
	for _, note := range []string{"devices.json", "last-look.json"} {
		require.NoError(t, os.Remove(s.path("root/run/"+note)))
	}
	require.Equal(t, genvtest.Result{Out: s.uuids(5) + "\n"}, alice.run("genv", "run", "-q", "--gpus", "1", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"), "of the others it is unknown whether they are in use")

	s = newStation(t) // root never looked
	require.NoError(t, proctest.Try(gpus.Read(s.path("gpus.json"))).OK(t).WriteProc(s.path("root/proc")))
	require.NoError(t, os.Mkdir(s.path("root/run"), 0o755))
	s.guard("enforce")
	s.show(map[int][]int{4242: {5}})
	alice = s.person("alice", 4242)
	refused := alice.run("genv", "run", "-q", "--gpus", "1", "true")
	require.NotZero(t, refused.Code)
	require.Contains(t, refused.Err, "sudo genv usage snapshot")
	require.NoFileExists(t, filepath.Join(s.state, "devices.json"), "one device of eight is not registered")
	s.admin().run("genv", "usage", "snapshot").OK(t)
	alice.run("genv", "run", "-q", "--gpus", "1", "true").OK(t)
	require.Equal(t, 8, strings.Count(alice.run("genv", "devices", "--no-header").OK(t).Out, "\n"))
}

// TestALoginLooksAtAGuardedHost, over a real sshd and without sudo: bob's nvidia-smi shows him
// the last of three devices as 0, and then none.
func TestALoginLooksAtAGuardedHost(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "ours", GPUs: 3}}, Genv: genvtest.Program(t)})
	h := f.Hosts()[0]
	bob := proctest.Try(h.Account("bob")).OK(t)
	_, err := h.StartJob(testfleet.Job{User: "bob", Env: genvtest.Outside, Command: []string{"/bin/sleep", "1000001"}, Uses: []testfleet.Use{{Device: 2, MiB: 2048}}})
	require.NoError(t, err)
	require.NoError(t, h.WriteProc())
	r := genvtest.Run(t, "remote", "-F", f.SSHConfig(), "-H", "ours", "enforce", "--interval", "0", "--dry-run")
	require.Zero(t, r.Code, r.Err) // root has looked
	for _, row := range []struct {
		visible []int
		want    []gpustate.State
	}{
		{[]int{2}, []gpustate.State{gpustate.Unknown, gpustate.Unknown, gpustate.Busy}},
		{nil, []gpustate.State{gpustate.Unknown, gpustate.Unknown, gpustate.Unknown}},
	} {
		driver := proctest.Try(gpus.Read(h.GPUs)).OK(t)
		driver.Visible = map[int][]int{int(bob.UID): row.visible}
		require.NoError(t, driver.Write(h.GPUs))
		r := genvtest.Run(t, "remote", "gpus", "-F", f.SSHConfig(), "-H", "ours", "-l", "bob", "--format", "json").OK(t)
		var document live.GPUs
		require.NoError(t, json.Unmarshal([]byte(r.Out), &document))
		var got []gpustate.State
		for _, g := range document.Hosts[0].GPUs {
			got = append(got, g.State)
		}
		require.Equal(t, row.want, got, r.Out)
		require.Zero(t, document.Free)
	}
}
