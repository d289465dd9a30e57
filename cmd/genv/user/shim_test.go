package user_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
)

// uses has nvidia-smi show processes on devices.
func (s *station) uses(on map[snapshot.PID]int) {
	s.t.Helper()
	host, err := gpus.Read(s.path("gpus.json"))
	require.NoError(s.t, err)
	for pid, device := range on {
		used := int64(1000)
		host.Apps = append(host.Apps, gpus.App{PID: int(pid), Device: device, UsedMiB: &used, Name: fmt.Sprintf("job-%d", pid)})
	}
	require.NoError(s.t, host.Write(s.path("gpus.json")))
}

func TestNvidiaSMIShowsTheEnvironment(t *testing.T) {
	eachShell(t, func(t *testing.T, kind string) {
		s := newStation(t)
		shell := s.me().open(kind)
		all := shell.say("nvidia-smi -L").text
		require.Equal(t, 8, strings.Count(all, "\n"), "not active: %s", all)
		require.Equal(t, said{}, shell.say("genv activate --gpu-memory 4g; genv attach --index 2,5; sleep 1000000 & mine=$!"))
		mine := shell.say("echo $mine").text
		var pid snapshot.PID
		_, err := fmt.Sscan(mine, &pid)
		require.NoError(t, err)
		outsider := s.me().command("/bin/sleep", "1000000")
		require.NoError(t, outsider.Start())
		t.Cleanup(func() { _ = outsider.Process.Kill(); _ = outsider.Wait() })
		s.uses(map[snapshot.PID]int{pid: 2, snapshot.PID(outsider.Process.Pid): 5})

		lines := strings.SplitAfter(all, "\n")
		require.Equal(t, said{text: lines[2] + lines[5]}, shell.say("nvidia-smi -L"))
		require.Equal(t, said{text: all}, shell.say("GENV_BYPASS=1 nvidia-smi -L"))
		require.Equal(t, said{text: "2, 3814\n5, 3814\n"}, shell.say("nvidia-smi --query-gpu=index,memory.total --format=csv,noheader,nounits"))
		require.Equal(t, said{text: pidText(pid) + "\n"}, shell.say("nvidia-smi --query-compute-apps=pid --format=csv,noheader"))
		table := shell.say("nvidia-smi")
		require.Empty(t, table.status)
		require.Contains(t, table.text, pidText(pid))
		require.NotContains(t, table.text, pidText(snapshot.PID(outsider.Process.Pid)))
		require.Equal(t, 2, strings.Count(table.text, "/   3814MiB"), table.text)
		require.Contains(t, shell.say("nvidia-smi -q -x").text, "<product_name>")
		require.Equal(t, shell.say("GENV_BYPASS=1 nvidia-smi --no-such-flag"), shell.say("nvidia-smi --no-such-flag"), "what is not known is passed on, with its status")
		require.Equal(t, "2", shell.say("nvidia-smi --no-such-flag").status)
		require.Equal(t, shell.say("GENV_BYPASS=1 GENV_SIM_FAULT=mismatch nvidia-smi"), shell.say("GENV_SIM_FAULT=mismatch nvidia-smi"), "failures too")
		require.Equal(t, said{}, shell.say("kill $mine; wait $mine 2>/dev/null; genv deactivate"))
		require.Equal(t, said{text: all}, shell.say("nvidia-smi -L"))
	})
}

func TestShimWithoutTheProgram(t *testing.T) {
	u := newStation(t).me()
	shell := u.open("bash")
	require.Equal(t, said{}, shell.say("genv activate; PATH=${PATH%%:*}:/usr/bin:/bin"))
	said := shell.say("nvidia-smi")
	require.Equal(t, "127", said.status)
	require.Contains(t, said.text, "nvidia-smi: executable file not found")
}

func TestDockerRunGetsTheAttachedDevices(t *testing.T) {
	s := newStation(t)
	u := s.me()
	docker := filepath.Join(u.home, "bin", "docker")
	require.NoError(t, os.MkdirAll(filepath.Dir(docker), 0o755))
	require.NoError(t, os.WriteFile(docker, []byte("#!/bin/sh\nprintf '[%s]' \"$@\"; echo; exit 4\n"), 0o755))
	shell := u.open("bash")
	shell.say("PATH=" + filepath.Dir(docker) + ":$PATH")
	require.Equal(t, said{"[run][--gpus][all][cuda]\n", "4"}, shell.say("docker run --gpus all cuda"))
	require.Equal(t, said{}, shell.say("genv activate --name 'a b'; genv attach --index 2,5"))
	variables := "[-e][GENV_ENVIRONMENT_ID=" + shell.pid() + "][-e][GENV_ENVIRONMENT_NAME=a b]"
	for line, want := range map[string]string{
		"run --gpus all cuda --gpus all":      `[run][--gpus]["device=2,5"]` + variables + "[cuda][--gpus][all]\n",
		"run --rm --gpus 1 cuda sh -c 'a  b'": `[run][--rm][--gpus][device=2]` + variables + "[cuda][sh][-c][a  b]\n",
		"ps --all":                            "[ps][--all]\n",
		"exec x docker run --gpus all":        "[exec][x][docker][run][--gpus][all]\n",
	} {
		require.Equal(t, said{want, "4"}, shell.say("docker "+line), line)
	}
	require.Equal(t, said{"[run][--gpus][all][cuda]\n", "4"}, shell.say("GENV_BYPASS=1 docker run --gpus all cuda"))
	more := shell.say("docker run --gpus 3 cuda")
	require.Equal(t, "125", more.status)
	require.Contains(t, more.text, "genv attach --count 3")
}
