package user_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/cmd/genv/host"
	simulated "github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// sicken changes what the driver of the station says.
func (s *station) sicken(change func(d *simulated.Driver)) {
	s.t.Helper()
	driver := proctest.Try(simulated.Read(s.path("gpus.json"))).OK(s.t)
	change(&driver)
	require.NoError(s.t, driver.Write(s.path("gpus.json")))
}

// TestFailedGPUsAreNotGiven: not by number, and not by index either.
func TestFailedGPUsAreNotGiven(t *testing.T) {
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
	s := parallelStation(t)
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
	s := parallelStation(t)
	root, shell := s.admin(), s.person("alice", 4001).open("bash")
	root.run("genv", "gpus").OK(t)
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
	s := parallelStation(t)
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
	s.admin().run("genv", "devices").OK(t)
	driver := simulated.Driver{Devices: simulated.H100s("station", 2)}
	pid, used := startSleeper(t, 0), int64(2048)
	driver.Apps = []simulated.App{{PID: int(pid), UsedMiB: &used}}
	require.NoError(t, driver.Write(s.path("gpus.json")))
	r := bob.run("genv", "gpus").OK(t)
	require.Empty(t, r.Err)
	require.Regexp(t, `(?m)^0    H100 80GB HBM3  busy +2\.0/80 .* root `+pidText(pid)+` 2\.0 GiB sleep`, r.Out)
	require.Contains(t, r.Out, "\n1 of 2 GPUs is free\n")
}

// partition gives a device of the station MIG instances.
func (s *station) partition(index int, instances ...simulated.MIG) {
	s.t.Helper()
	s.sicken(func(d *simulated.Driver) { d.Devices[index].MIG = instances })
}

// TestAttachInstance: two environments have a MIG instance each of one device, and genv 1.4.3 sees two that share it.
func TestAttachInstance(t *testing.T) {
	s := parallelStation(t)
	s.partition(2, simulated.MIG{Profile: "3g.40gb", UUID: "MIG-a"}, simulated.MIG{Profile: "1g.10gb", UUID: "MIG-b"})
	first, second := s.me().open("bash"), s.me().open("bash")
	for _, shell := range []*terminal{first, second} {
		shell.sayAll("genv activate --name train")
	}
	require.Contains(t, first.sayAll("genv attach --mig 1g.10gb").text, "Attached GPU 2 (H100 80GB HBM3)")
	require.Equal(t, "MIG-b", first.sayAll("printf %s $CUDA_VISIBLE_DEVICES").text)
	require.Contains(t, second.sayAll("genv attach --mig 1g.10gb").text, "no MIG instance of profile 1g.10gb is free")
	require.Contains(t, second.sayAll("genv attach --mig MIG-b").text, "MIG instance MIG-b of GPU 2 is not available")
	require.Contains(t, second.sayAll("genv attach --index 2").text, "GPU 2 is in MIG mode: `genv attach --mig` attaches its instances")
	require.Contains(t, second.sayAll("genv attach --mig 2g.20gb").text, "there are 3g.40gb MIG-a of GPU 2, 1g.10gb MIG-b of GPU 2")
	require.Contains(t, second.sayAll("genv attach --mig MIG-a").text, "Attached GPU 2 (H100 80GB HBM3)")
	require.Equal(t, "MIG-a", second.sayAll("printf %s $CUDA_VISIBLE_DEVICES").text)

	devices := proctest.ReadFile(t, s.path("state/devices.json"))
	require.Equal(t, 1, strings.Count(string(devices), `"gpu_memory": "40960mi"`), string(devices))
	require.Equal(t, 1, strings.Count(string(devices), `"gpu_memory": "10240mi"`), string(devices))
	require.NotContains(t, string(devices), "MIG")

	var document host.GPUsDocument
	answer := s.me().run("genv", "gpus", "--format", "json")
	require.NoError(t, json.Unmarshal([]byte(answer.Out), &document), answer.Err)
	attached := document.GPUs[2].Attached
	require.Equal(t, [][]snapshot.GPUUUID{{"MIG-b"}, {"MIG-a"}}, [][]snapshot.GPUUUID{attached[0].Instances, attached[1].Instances})
	require.Len(t, document.GPUs[2].Instances, 2)

	require.Empty(t, first.sayAll("genv detach --index 2").status)
	require.Equal(t, "-1", first.sayAll("printf %s $CUDA_VISIBLE_DEVICES").text)
	require.Contains(t, second.sayAll("genv attach --mig 1g.10gb").text, "Attached GPU 2 (H100 80GB HBM3)")
	require.Equal(t, "MIG-a,MIG-b", second.sayAll("printf %s $CUDA_VISIBLE_DEVICES").text)
	require.Contains(t, second.sayAll("genv attach --index 1 --mig MIG-a").text, "exclude each other")

	// Compute instances of one GPU instance share its memory.
	s.partition(3, simulated.MIG{Profile: "1c.3g.40gb", UUID: "MIG-c", GI: 2}, simulated.MIG{Profile: "2c.3g.40gb", UUID: "MIG-d", GI: 2, CI: 1})
	require.Contains(t, first.sayAll("genv attach --mig MIG-c").text, "Attached GPU 3 (H100 80GB HBM3)")
	require.Contains(t, first.sayAll("genv attach --mig MIG-d").text, "Attached GPU 3 (H100 80GB HBM3)")
	require.Equal(t, "MIG-c,MIG-d", first.sayAll("printf %s $CUDA_VISIBLE_DEVICES").text)
	devices = proctest.ReadFile(t, s.path("state/devices.json"))
	require.Equal(t, 1, strings.Count(string(devices), `"gpu_memory": "40960mi"`), string(devices))
	require.Equal(t, 1, strings.Count(string(devices), `"gpu_memory": "51200mi"`), string(devices)) // of MIG-a and MIG-b
}

// TestDockerRunGetsTheInstances: each is a device of the container.
func TestDockerRunGetsTheInstances(t *testing.T) {
	s := parallelStation(t)
	s.partition(2, simulated.MIG{Profile: "1g.10gb", UUID: "MIG-a"}, simulated.MIG{Profile: "1g.10gb", UUID: "MIG-b"}, simulated.MIG{Profile: "1g.10gb", UUID: "MIG-c"})
	u := s.me()
	docker := filepath.Join(u.home, "bin", "docker")
	require.NoError(t, os.MkdirAll(filepath.Dir(docker), 0o755))
	require.NoError(t, proctest.WriteProgram(docker, []byte("#!/bin/sh\nprintf '[%s]' \"$2\" \"$3\"; echo\n")))
	shell := u.open("bash")
	require.Equal(t, said{}, shell.say("PATH="+filepath.Dir(docker)+":$PATH; genv activate; genv attach --mig MIG-b,MIG-c"))
	for ask, want := range map[string]string{
		"all": `"device=MIG-b,MIG-c"`, "1": "device=MIG-b", "device=MIG-c": "device=MIG-c", `'"device='$CUDA_VISIBLE_DEVICES'"'`: `"device=MIG-b,MIG-c"`,
	} {
		require.Equal(t, said{text: "[--gpus][" + want + "]\n"}, shell.say("docker run --gpus "+ask+" cuda"), ask)
	}
	require.Contains(t, shell.say("docker run --gpus device=MIG-a cuda").text, "not understood")
}

// parts are the MIG instances of each environment on a device, by its name.
type parts map[string][]snapshot.GPUUUID

// showInstances waits until genv shows users these instances of device 2: root's service may answer them
// with what it found a moment ago.
func showInstances(t *testing.T, want parts, users ...*account) {
	t.Helper()
	for _, u := range users {
		var shown parts
		require.Eventually(t, func() bool {
			answer := u.run("genv", "gpus", "--format", "json").OK(t)
			var document host.GPUsDocument
			require.NoError(t, json.Unmarshal([]byte(answer.Out), &document), answer.Out)
			shown = parts{}
			for _, a := range document.GPUs[2].Attached {
				shown[a.Name] = a.Instances
			}
			return reflect.DeepEqual(want, shown)
		}, 30*time.Second, 100*time.Millisecond, "uid %d: %v, shown %v", u.uid, want, &shown)
	}
}

// TestInstancesWhereRootOwnsTheState: what users attached before stays theirs when root takes the state over and when
// it gives it back, and in between root's service attaches instances for the user who asks.
func TestInstancesWhereRootOwnsTheState(t *testing.T) {
	proctest.NeedRoot(t)
	s := parallelStation(t)
	s.partition(2, simulated.MIG{Profile: "3g.40gb", UUID: "MIG-a"}, simulated.MIG{Profile: "1g.10gb", UUID: "MIG-b"}, simulated.MIG{Profile: "1g.10gb", UUID: "MIG-c"})
	alice, bob := s.person("alice", 4001), s.person("bob", 4002)
	hers, his := alice.open("bash"), bob.open("bash")
	require.Equal(t, said{}, hers.say("genv activate --name hers"))
	require.Contains(t, hers.sayAll("genv attach --mig MIG-a").text, "Attached GPU 2 (H100 80GB HBM3)")
	require.FileExists(t, filepath.Join(s.state, "mig/4001.json"))

	service := s.serve()
	showInstances(t, parts{"hers": {"MIG-a"}}, bob)
	require.Equal(t, said{}, his.say("genv activate --name his"))
	require.Contains(t, his.sayAll("genv attach --mig MIG-a").text, "MIG instance MIG-a of GPU 2 is not available")
	require.Contains(t, his.sayAll("genv attach --mig 3g.40gb").text, "no MIG instance of profile 3g.40gb is free")
	require.Contains(t, his.sayAll("genv attach --index 2").text, "GPU 2 is in MIG mode")
	require.Contains(t, his.sayAll("genv attach --mig 1g.10gb").text, "Attached GPU 2 (H100 80GB HBM3)")
	require.Equal(t, said{text: "MIG-b\n"}, his.say("echo $CUDA_VISIBLE_DEVICES"))
	both := parts{"hers": {"MIG-a"}, "his": {"MIG-b"}}
	showInstances(t, both, s.admin(), alice, bob)
	require.NotEmpty(t, his.say("genv devices detach --eid "+hers.pid()+" --index 2").status, "another user's")
	showInstances(t, both, alice)
	require.Equal(t, os.FileMode(0o644), proctest.Try(os.Stat(s.path("root/host/mig/4002.json"))).OK(t).Mode())
	copied := proctest.ReadFile(t, filepath.Join(s.state, "devices.json"))
	require.Contains(t, string(copied), `"gpu_memory": "10240mi"`, "for 1.4.3")
	require.NotContains(t, string(copied), "MIG")

	// What a user writes to the old folder meanwhile counts for nothing.
	forged := filepath.Join(s.state, "mig/4002.json")
	require.NoError(t, os.RemoveAll(forged))
	require.NoError(t, bob.command("sh", "-c", `printf '[]' > '`+forged+`' || true`).Run())
	showInstances(t, both, bob)
	require.NoError(t, service.Process.Kill())
	_ = service.Wait()
	showInstances(t, both, s.admin())

	s.admin().run("genv", "host", "handover").OK(t)
	showInstances(t, both, bob)
	require.Equal(t, said{text: "-1\n"}, hers.say("genv detach --index 2; echo $CUDA_VISIBLE_DEVICES"))
	require.Contains(t, his.sayAll("genv attach --mig MIG-a").text, "Attached GPU 2 (H100 80GB HBM3)")
	require.Equal(t, said{text: "MIG-b,MIG-a\n"}, his.say("echo $CUDA_VISIBLE_DEVICES"), "CUDA goes on using the first")
	showInstances(t, parts{"his": {"MIG-b", "MIG-a"}}, alice)
}

// TestInstancesOnAGuardedHost: root has published which instances there are, and users don't
// see the device itself before they have it.
func TestInstancesOnAGuardedHost(t *testing.T) {
	t.Parallel()
	s := guarded(t, "enforce", map[int][]int{})
	s.partition(2, simulated.MIG{Profile: "1g.10gb", UUID: "MIG-a"}, simulated.MIG{Profile: "1g.10gb", UUID: "MIG-b"})
	require.Zero(t, s.admin().run("genv", "usage", "snapshot").Code) // root publishes them
	alice := s.person("alice", 4242)
	shell := alice.open("bash")
	require.Equal(t, said{text: "-1\n"}, shell.say("genv activate --name a; echo $CUDA_VISIBLE_DEVICES"))
	require.Contains(t, shell.sayAll("genv attach --mig 2g.20gb").text, "there are 1g.10gb MIG-a of GPU 2, 1g.10gb MIG-b of GPU 2")
	require.Contains(t, shell.sayAll("genv attach --mig 1g.10gb").text, "Attached GPU 2 (H100 80GB HBM3)")
	require.Equal(t, said{text: "MIG-a\n"}, shell.say("echo $CUDA_VISIBLE_DEVICES"))
	showInstances(t, parts{"a": {"MIG-a"}}, alice)
	s.show(map[int][]int{4242: {2, 5}})
	require.Equal(t, said{text: s.uuids(5) + "\n"}, shell.say("genv detach --index 2; genv attach --index 5; echo $CUDA_VISIBLE_DEVICES"))
	require.Contains(t, shell.sayAll("genv attach --mig 1g.10gb,1g.10gb").text, "Attached GPUs 2, 5 (H100 80GB HBM3)")
	require.Equal(t, said{text: "MIG-a,MIG-b," + s.uuids(5) + "\n"}, shell.say("echo $CUDA_VISIBLE_DEVICES"))
	require.NotContains(t, shell.sayAll("genv status").text, "run genv attach --refresh", "these are UUIDs")
	showInstances(t, parts{"a": {"MIG-a", "MIG-b"}}, s.admin())
	require.Regexp(t, `(?m)^GPU 2: .*\n(  MIG .*\n){2}GPU 5: .*\n`, shell.say("nvidia-smi -L").text)
}
