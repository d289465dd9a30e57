package user_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
)

// A state file that is removed or ruined ends no work: root's next look
// restores it, and says who did it.
func TestALostStateFileIsRestored(t *testing.T) {
	s := newStation(t)
	shell := s.me().open("bash")
	require.Equal(t, said{}, shell.say("genv activate --gpus 2"))
	for _, name := range []string{"envs.json", "devices.json"} {
		path := filepath.Join(s.state, name)
		for _, lose := range []func() error{
			func() error { return os.Remove(path) },
			func() error { return os.WriteFile(path, []byte("garbage"), 0o666) },
			func() error { return os.RemoveAll(s.state) },
		} {
			require.NoError(t, lose())
			r := s.me().run("genv", "devices", "find", "--eid", shell.pid())
			require.Equal(t, "0,1\n", r.Out, r.Err)
			require.Zero(t, r.Code)
			require.Contains(t, r.Err, path+" was ")
			require.Contains(t, r.Err, "restored from root's copy of ")
			require.Equal(t, genvtest.Result{Out: "0,1\n"}, s.me().run("genv", "devices", "find", "--eid", shell.pid()), "said once")
		}
	}
	genvtest.NeedsRoot(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.state, "envs.json"), []byte("garbage"), 0o666))
	require.Equal(t, genvtest.Result{Out: noEnvironments}, s.me().run("genv", "envs", "--reset", "--format", "csv"))
	require.NoError(t, os.Remove(filepath.Join(s.state, "envs.json")))
	r := s.me().run("genv", "envs", "--format", "csv")
	require.Equal(t, noEnvironments, r.Out, "the loss was accepted")
}

// Without root a bad file is an error with a next step, and nothing changes.
func TestAUserIsToldToAskRoot(t *testing.T) {
	s := newStation(t)
	hers := s.person("alice", alice)
	genvtest.NeedsRoot(t)
	shell := hers.open("bash")
	require.Equal(t, said{}, shell.say("genv activate --gpus 1"))
	require.Zero(t, s.me().run("genv", "envs").Code) // root has its copy
	require.NoError(t, os.WriteFile(filepath.Join(s.state, "envs.json"), []byte("garbage"), 0o666))
	require.Contains(t, shell.say("genv envs").text, "state is corrupt")
	require.Contains(t, s.me().run("genv", "envs").Err, "restored from root's copy")
	require.Equal(t, said{text: "0\n"}, shell.say("genv devices find"))
}

// `genv envs` in a container that shares the state folder changes nothing.
func TestAContainerCleansNothingUp(t *testing.T) {
	s := newStation(t)
	u := s.me()
	shell := u.open("bash")
	require.Equal(t, said{}, shell.say("genv activate --gpus 2; genv devices >/dev/null"))
	before := s.stateFiles()
	for _, flags := range []string{"-Urpf --mount-proc", "-pf --mount-proc"} {
		if out, err := exec.Command("unshare", append(strings.Fields(flags), "true")...).CombinedOutput(); err != nil {
			t.Logf("unshare %s: %s", flags, out)
			continue
		}
		for _, root := range []string{s.path("root"), s.path("none")} {
			words := append(append([]string{"unshare"}, strings.Fields(flags)...), "env", "GENV_ROOT_DIR="+root, "genv", "envs", "query", "--query", "eid")
			r := u.run(words...)
			require.Equal(t, shell.pid()+"\n", r.Out, r.Err)
			require.Equal(t, 1, strings.Count(r.Err, "nothing was cleaned up"), r.Err)
			require.Equal(t, before, s.stateFiles(), "%s, root's notes in %s", flags, root)
		}
	}
	require.Equal(t, said{text: "0,1\n"}, shell.say("genv devices find"))
}
