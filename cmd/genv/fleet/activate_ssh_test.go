package fleet_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestRemoteActivate: the host with the most room is chosen, and the shell there
// activates itself, over a real sshd that accepts no variables.
func TestRemoteActivate(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("full", "roomy", "half"), Genv: genvtest.Program(t)})
	for host, devices := range map[string][]snapshot.DeviceIndex{"full": {0, 1, 2, 3, 4, 5, 6, 7}, "half": {0, 1, 2, 3}, "roomy": {0}} {
		genvtest.Activate(t, f.Host(host), testfleet.Environment{User: "alice", Devices: devices})
	}
	home := filepath.Join(f.Dir, "home", f.Host("roomy").User)
	rc := "export PATH=" + f.Dir + "/bin:" + f.Dir + "/driver:$PATH\neval \"$(genv shell --init)\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(home, ".profile"), []byte(rc), 0o644))

	session := func(script string, args ...string) genvtest.Result {
		cmd := exec.Command(genvtest.Program(t), append([]string{"remote", "activate", "-F", f.SSHConfig(), "-H", "full,half,roomy"}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		cmd.Stdin = strings.NewReader(script)
		return genvtest.Exec(t, cmd)
	}
	script := "echo \"<$GENV_ENVIRONMENT_NAME|$CUDA_VISIBLE_DEVICES|$GENV_GPU_MEMORY|$(env | grep -c GENV_PREACTIVATE)>\"\nexit 6\n"
	r := session(script, "--gpus", "2", "--name", "it's \"$(id)\" & co", "--gpu-memory", "4G")
	require.Contains(t, r.Out, `<it's "$(id)" & co|1,2|4g|0>`, r.Err)
	require.Equal(t, 6, r.Code, "the session's own status")
	require.Len(t, genvtest.Devices(t, f.Host("roomy"))[1].Attachments, 1, "it was attached there")

	r = session("", "--gpus", "8")
	require.Equal(t, genvtest.Result{Err: "genv: no host has 8 GPUs for this now; `genv remote gpus` shows what there is\n", Code: 1}, r)
	r = session("", "--gpus", "0").Exits(t, 1, `gpus "0"`)
}

// TestRemoteActivateBetweenVersions: what 1.4.3's controller sends activates our shells,
// and our controller sends what a shell of 1.4.3 reads.
func TestRemoteActivateBetweenVersions(t *testing.T) {
	t.Parallel()
	f, _ := mixedFleet(t)
	home := func(host string) string { return filepath.Join(f.Dir, "home", f.Host(host).User) }
	rc := "export PATH=" + f.Dir + "/bin:" + f.Dir + "/driver:$PATH\neval \"$(genv shell --init)\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(home("ours"), ".profile"), []byte(rc), 0o644))

	// As recorded: `genv remote -H ours activate --name my-env --gpus 2 --no-prompt` of 1.4.3.
	cmd := exec.Command("ssh", "-F", f.SSHConfig(), "-o", "SendEnv=GENV_PREACTIVATE", "-o", "SendEnv=GENV_PREACTIVATE_PROMPT",
		"-o", "SendEnv=GENV_PREACTIVATE_GPUS", "-o", "SendEnv=GENV_PREACTIVATE_ENVIRONMENT_NAME", "ours")
	cmd.Env = append(os.Environ(), "GENV_PREACTIVATE=1", "GENV_PREACTIVATE_PROMPT=0", "GENV_PREACTIVATE_GPUS=2", "GENV_PREACTIVATE_ENVIRONMENT_NAME=my-env")
	cmd.Stdin = strings.NewReader("echo \"<$GENV_ENVIRONMENT_NAME|$CUDA_VISIBLE_DEVICES|$(env | grep -c GENV_PREACTIVATE)>\"\n")
	r := genvtest.Exec(t, cmd)
	require.Contains(t, r.Out, "<my-env|1,2|0>", r.Err)

	cmd = exec.Command(genvtest.Program(t), "remote", "activate", "-F", f.SSHConfig(), "-H", "old", "--gpus", "2", "--name", "my-env", "--no-prompt")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	cmd.Stdin = strings.NewReader("env | grep ^GENV_PREACTIVATE | sort\n")
	r = genvtest.Exec(t, cmd)
	for _, variable := range []string{"=1", "_ENVIRONMENT_NAME=my-env", "_GPUS=2", "_PROMPT=0"} {
		require.Regexp(t, "(?m)^GENV_PREACTIVATE"+variable+"\r?$", r.Out, r.Err)
	}
}
