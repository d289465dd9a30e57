package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/host"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// TestAMD: on a machine without nvidia-smi, the kernel knows the GPUs and who uses them.
// The tree of /sys is constructed; the process that uses a GPU is a real one.
func TestAMD(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	built, err := programs()
	require.NoError(t, err)
	s.env[0] = "PATH=" + built + "/bin:/usr/bin:/bin" // without nvidia-smi
	sys := s.path("root/sys")
	require.NoError(t, os.CopyFS(sys, os.DirFS("../../snapshot/amdgpu/testdata/constructed/mi210/sys")))
	pid := startSleeper(t, os.Getuid())
	use := filepath.Join(sys, "class/kfd/kfd/proc", pidText(pid))
	require.NoError(t, os.MkdirAll(use, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(use, "vram_51235"), []byte("4294967296\n"), 0o644))
	u := s.me()

	var document host.GPUsDocument
	answer := u.run("genv", "gpus", "--format", "json")
	require.NoError(t, json.Unmarshal([]byte(answer.out), &document), answer.err)
	require.Len(t, document.GPUs, 2, answer.out)
	require.Equal(t, []gpus.State{gpus.Free, gpus.Busy}, []gpus.State{document.GPUs[0].State, document.GPUs[1].State})
	require.Equal(t, pid, document.GPUs[1].Processes[0].PID)
	require.EqualValues(t, 4<<30, *document.GPUs[1].Processes[0].Memory)
	require.Equal(t, snapshot.GPUUUID("GPU-1f2e3d4c5b6a7981"), document.GPUs[1].UUID)

	shell := u.open("bash")
	require.Empty(t, shell.sayAll("HIP_VISIBLE_DEVICES=mine; genv activate").status)
	require.Contains(t, shell.sayAll("genv attach --index 1").text, "Warning: GPU 1 is in use by process "+pidText(pid))
	require.Equal(t, "1 0 0", shell.sayAll("printf '%s %s %s' $ROCR_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES $CUDA_VISIBLE_DEVICES").text)
	require.Equal(t, "0\n", u.run("genv", "run", "--gpus", "1", "-q", "printenv", "ROCR_VISIBLE_DEVICES").out)
	require.Contains(t, shell.sayAll("nvidia-smi").text, "the GPUs of this machine are AMD's; `genv gpus` shows them")
	shell.sayAll("genv deactivate")
	require.Equal(t, "mine", shell.sayAll("printf %s $HIP_VISIBLE_DEVICES$ROCR_VISIBLE_DEVICES").text)

	requireAMDExplained(t, u)
	enforced := u.run("genv", "enforce", "--interval", "0", "--non-env-processes", "--dry-run")
	require.Contains(t, enforced.out, "Process "+pidText(pid)+" is not running in a GPU environment", enforced.err)
}

// requireAMDExplained requires that commands that know NVIDIA GPUs only say so, instead of
// missing nvidia-smi or claiming to work.
func requireAMDExplained(t *testing.T, u *account) {
	t.Helper()
	examined := u.run("genv", "doctor")
	require.Contains(t, examined.out, "2 AMD GPUs, as the kernel says")
	require.NotContains(t, examined.out, "nvidia")

	require.NoError(t, os.MkdirAll(u.path("root/proc/driver/nvidia/gpus"), 0o755)) // the machine that runs this may have NVIDIA GPUs
	for _, variable := range []string{"GENV_GUARD_PINS", "GENV_GUARD_CGROUP"} {
		u.env = append(u.env, variable+"="+u.path("guard"))
	}
	require.Contains(t, u.run("genv", "guard", "status").out, "the guard doesn't know AMD GPUs")
	if os.Geteuid() == 0 {
		answer := u.run("genv", "guard", "run", "--mode", "enforce", "--lease", "60s")
		require.NotZero(t, answer.code)
		require.Contains(t, answer.err, "`genv enforce` works, and the group of /dev/kfd and /dev/dri/renderD* (render) decides")
	}
}
