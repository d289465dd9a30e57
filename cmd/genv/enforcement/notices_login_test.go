package enforcement_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// A user who is not logged in finds the message at the next login: in the first
// interactive shell, once, and in no connection that runs a command or copies files.
func TestNoticesAtTheNextLogin(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("in-bash", "in-zsh"), Genv: genvtest.Program(t)})
	home := filepath.Join(f.Dir, "home", f.Host("in-bash").User)
	rc := "export PATH=" + f.Dir + "/bin:" + f.Dir + "/driver:$PATH\neval \"$(genv shell --init)\"\n"
	for _, name := range []string{".profile", ".bashrc", ".zshrc"} {
		require.NoError(t, os.WriteFile(filepath.Join(home, name), []byte(rc), 0o644))
	}
	pids := map[string]string{}
	for _, host := range []string{"in-bash", "in-zsh"} {
		p, err := f.Host(host).StartJob(testfleet.Job{User: f.Host(host).User, Env: genvtest.Outside, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
		require.NoError(t, err)
		pids[host] = fmt.Sprintf("Process %d is not running in a GPU environment", p.PID)
	}
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.jsonl")
	require.NoError(t, os.WriteFile(policy, []byte("defaults: {non-env-processes: true, warn: {for: 1h}}\n"), 0o600))
	enforced := genvtest.Run(t, "remote", "-F", f.SSHConfig(), "-H", "in-bash,in-zsh", "enforce", "--interval", "0", "--policy", policy, "--audit-log", log, "--state-dir", dir+"/state")
	require.Zero(t, enforced.Code, enforced.Err)
	record, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(record), `"channel":"login"`), string(record))

	session := func(script string, args ...string) string {
		cmd := exec.Command("ssh", append([]string{"-F", f.SSHConfig()}, args...)...)
		cmd.Stdin = strings.NewReader(script)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		_ = cmd.Run() // the shell's own status
		return out.String()
	}
	t.Run("commands and copies are as always", func(t *testing.T) {
		require.Equal(t, "hello\n", session("", "-T", "in-bash", "echo hello"))
		require.Equal(t, "hello\n", session("", "in-bash", "bash -lc 'echo hello'"))
		require.Equal(t, "hello\n", session("", "in-zsh", "zsh -c '. ~/.zshrc; echo hello'"))
		from := filepath.Join(dir, "file")
		require.NoError(t, os.WriteFile(from, []byte("content"), 0o600))
		out, err := exec.Command("scp", "-O", "-F", f.SSHConfig(), from, "in-bash:copied").CombinedOutput()
		require.NoError(t, err, string(out))
	})
	t.Run("bash", func(t *testing.T) {
		first := session("exit\n", "-tt", "in-bash")
		require.Equal(t, 1, strings.Count(first, pids["in-bash"]), first)
		require.Contains(t, first, "Start GPU work in an environment")
		require.NotContains(t, session("exit\n", "-tt", "in-bash"), pids["in-bash"])
		require.Contains(t, session("", "in-bash", f.Dir+"/bin/genv notices"), pids["in-bash"], "they can be read again")
		require.NotContains(t, session("", "in-bash", f.Dir+"/bin/genv notices --new"), pids["in-bash"])
	})
	t.Run("zsh", func(t *testing.T) {
		first := session("exit\n", "-tt", "in-zsh", "zsh -i")
		require.Equal(t, 1, strings.Count(first, pids["in-zsh"]), first)
		require.NotContains(t, session("exit\n", "-tt", "in-zsh", "zsh -i"), pids["in-zsh"])
		require.NotContains(t, session("exit\n", "-tt", "in-bash"), pids["in-bash"], "the home is the same")
	})
}
