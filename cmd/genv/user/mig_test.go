package user_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/host"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// partition gives a device of the station MIG instances.
func (s *station) partition(index int, instances ...gpus.MIG) {
	s.t.Helper()
	driver, err := gpus.Read(s.path("gpus.json"))
	require.NoError(s.t, err)
	driver.Devices[index].MIG = instances
	require.NoError(s.t, driver.Write(s.path("gpus.json")))
}

// TestAttachInstance: two environments have a MIG instance each of one device, and genv 1.4.3 sees two that share it.
func TestAttachInstance(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.partition(2, gpus.MIG{Profile: "3g.40gb", UUID: "MIG-a"}, gpus.MIG{Profile: "1g.10gb", UUID: "MIG-b"})
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

	devices, err := os.ReadFile(s.path("state/devices.json"))
	require.NoError(t, err)
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
	s.partition(3, gpus.MIG{Profile: "1c.3g.40gb", UUID: "MIG-c", GI: 2}, gpus.MIG{Profile: "2c.3g.40gb", UUID: "MIG-d", GI: 2, CI: 1})
	require.Contains(t, first.sayAll("genv attach --mig MIG-c").text, "Attached GPU 3 (H100 80GB HBM3)")
	require.Contains(t, first.sayAll("genv attach --mig MIG-d").text, "Attached GPU 3 (H100 80GB HBM3)")
	require.Equal(t, "MIG-c,MIG-d", first.sayAll("printf %s $CUDA_VISIBLE_DEVICES").text)
	devices, err = os.ReadFile(s.path("state/devices.json"))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(devices), `"gpu_memory": "40960mi"`), string(devices))
	require.Equal(t, 1, strings.Count(string(devices), `"gpu_memory": "51200mi"`), string(devices)) // of MIG-a and MIG-b
}

// TestDockerRunGetsTheInstances: each is a device of the container.
func TestDockerRunGetsTheInstances(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.partition(2, gpus.MIG{Profile: "1g.10gb", UUID: "MIG-a"}, gpus.MIG{Profile: "1g.10gb", UUID: "MIG-b"}, gpus.MIG{Profile: "1g.10gb", UUID: "MIG-c"})
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
			answer := u.run("genv", "gpus", "--format", "json")
			require.Zero(t, answer.Code, answer.Err)
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
	t.Parallel()
	s := newStation(t)
	s.partition(2, gpus.MIG{Profile: "3g.40gb", UUID: "MIG-a"}, gpus.MIG{Profile: "1g.10gb", UUID: "MIG-b"}, gpus.MIG{Profile: "1g.10gb", UUID: "MIG-c"})
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
	info, err := os.Stat(s.path("root/host/mig/4002.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode())
	copied, err := os.ReadFile(filepath.Join(s.state, "devices.json"))
	require.NoError(t, err)
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

	handed := s.admin().run("genv", "host", "handover")
	require.Zero(t, handed.Code, handed.Err)
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
	s.partition(2, gpus.MIG{Profile: "1g.10gb", UUID: "MIG-a"}, gpus.MIG{Profile: "1g.10gb", UUID: "MIG-b"})
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
