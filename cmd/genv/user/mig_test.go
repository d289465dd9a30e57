package user_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/host"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
)

// partition gives a device of the station MIG instances.
func (s *station) partition(index int, instances ...gpus.MIG) {
	s.t.Helper()
	driver, err := gpus.Read(s.path("gpus.json"))
	require.NoError(s.t, err)
	driver.Devices[index].MIG = instances
	require.NoError(s.t, driver.Write(s.path("gpus.json")))
}

// TestAttachInstance: two environments have a MIG instance each of one device, and genv 1.4.3
// sees two that share it.
func TestAttachInstance(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.partition(2, gpus.MIG{Profile: "3g.40gb", UUID: "MIG-a"}, gpus.MIG{Profile: "1g.10gb", UUID: "MIG-b"})
	first, second := s.me().open("bash"), s.me().open("bash")
	for _, shell := range []*terminal{first, second} {
		shell.sayAll("genv activate --name train")
	}
	require.Contains(t, first.sayAll("genv attach --mig 1g.10gb").text, "Attached GPUs: 2")
	require.Equal(t, "MIG-b", first.sayAll("printf %s $CUDA_VISIBLE_DEVICES").text)
	require.Contains(t, second.sayAll("genv attach --mig 1g.10gb").text, "no MIG instance of profile 1g.10gb is free")
	require.Contains(t, second.sayAll("genv attach --mig MIG-b").text, "MIG instance MIG-b of device 2 is not available")
	require.Contains(t, second.sayAll("genv attach --index 2").text, "Device 2 is not available")
	require.Contains(t, second.sayAll("genv attach --mig 2g.20gb").text, "there are 3g.40gb MIG-a of GPU 2, 1g.10gb MIG-b of GPU 2")
	require.Contains(t, second.sayAll("genv attach --mig MIG-a").text, "Attached GPUs: 2")
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
	require.Contains(t, second.sayAll("genv attach --mig 1g.10gb").text, "Attached GPUs: 2")
	require.Equal(t, "MIG-a,MIG-b", second.sayAll("printf %s $CUDA_VISIBLE_DEVICES").text)
	require.Contains(t, second.sayAll("genv attach --index 1 --mig MIG-a").text, "exclude each other")
}

// TestDockerRunGetsTheInstances: each is a device of the container.
func TestDockerRunGetsTheInstances(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.partition(2, gpus.MIG{Profile: "1g.10gb", UUID: "MIG-a"}, gpus.MIG{Profile: "1g.10gb", UUID: "MIG-b"}, gpus.MIG{Profile: "1g.10gb", UUID: "MIG-c"})
	u := s.me()
	docker := filepath.Join(u.home, "bin", "docker")
	require.NoError(t, os.MkdirAll(filepath.Dir(docker), 0o755))
	require.NoError(t, os.WriteFile(docker, []byte("#!/bin/sh\nprintf '[%s]' \"$2\" \"$3\"; echo\n"), 0o755))
	shell := u.open("bash")
	require.Equal(t, said{}, shell.say("PATH="+filepath.Dir(docker)+":$PATH; genv activate; genv attach --mig MIG-b,MIG-c"))
	for ask, want := range map[string]string{
		"all": `"device=MIG-b,MIG-c"`, "1": "device=MIG-b", "device=MIG-c": "device=MIG-c", `'"device='$CUDA_VISIBLE_DEVICES'"'`: `"device=MIG-b,MIG-c"`,
	} {
		require.Equal(t, said{text: "[--gpus][" + want + "]\n"}, shell.say("docker run --gpus "+ask+" cuda"), ask)
	}
	require.Contains(t, shell.say("docker run --gpus device=MIG-a cuda").text, "not understood")
}
