package user_test

import (
	"bytes"
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
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// serve lets root own the state of the station, by a service that runs until the test ends.
func (s *station) serve() *exec.Cmd { return s.serveBy("genv", "host", "serve") }

func (s *station) serveBy(words ...string) *exec.Cmd {
	s.t.Helper()
	proctest.NeedRoot(s.t)
	cmd := s.admin().command(words...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	proctest.Start(s.t, cmd)
	socket := s.path("root/run/host.sock")
	require.Eventually(s.t, func() bool {
		_, err := os.Stat(socket)
		return err == nil
	}, 30*time.Second, 5*time.Millisecond, "%s", &errs)
	return cmd
}

// `genv lock`, and what takes the same locks as 1.4.3 does, by users who can't write the
// state. Who has no device is refused.
func TestLockWhereRootOwnsTheState(t *testing.T) {
	t.Parallel()
	flock, err := exec.LookPath("flock")
	if err != nil {
		t.Skip(err)
	}
	s := newStation(t)
	s.serve()
	alice, bob := s.person("alice", 4242), s.person("bob", 4243)
	shell := alice.open("bash")
	refused := genvtest.Result{Code: 1, Err: "no GPU is locked, and the command was not run: this shell has no GPU; run `genv attach`\n"}
	require.Equal(t, refused, bob.run("genv", "lock", "echo", "ran"))
	require.Equal(t, said{text: refused.Err, status: "1"}, shell.say("genv activate; genv lock echo ran"))
	require.Equal(t, said{}, shell.say("genv attach --index 1,3"))
	info := proctest.Try(os.Stat(s.state)).OK(t)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	file := func(index string) string { return filepath.Join(s.state, "devices", index+".lock") }

	require.Equal(t, said{text: "held\n"}, shell.say("genv lock echo held"))
	for _, index := range []string{"1", "3"} {
		info := proctest.Try(os.Stat(file(index))).OK(t)
		require.Equal(t, os.FileMode(0o666), info.Mode().Perm(), "others lock it too")
		require.Equal(t, said{status: "9"}, shell.say("genv lock "+flock+" -n -E 9 "+file(index)+" true"))
		require.Equal(t, genvtest.Result{}, bob.run("flock", "-n", file(index), "true"))
	}
	require.Equal(t, genvtest.Result{}, bob.run("flock", "-n", file("0"), "true"), "1.4.3 locks what it likes")

	marker := s.path("alice/ran")
	shell.say("command genv lock sleep 1000 & job=$!; until ! " + flock + " -n " + file("3") + " true; do :; done")
	require.Equal(t, genvtest.Result{Code: 9}, bob.run("flock", "-n", "-E", "9", file("1"), "true"), "bob waits for alice")
	shell.say("kill $job; wait $job")
	holder := bob.command("flock", file("1"), "sh", "-c", "echo; read line")
	in, out := proctest.StartPiped(t, holder)
	proctest.Try(out.Read(make([]byte, 1))).OK(t)
	waits := shell.sayAll("timeout 3 genv lock touch " + marker)
	require.Contains(t, waits.text, `/devices/1.lock, which is locked by process`, "alice waits for bob")
	require.Contains(t, waits.text, "of uid 4243, to whom the GPU is not attached\n")
	require.NoFileExists(t, marker)
	require.NoError(t, in.Close())
	_ = holder.Wait() // the status of read
	require.Equal(t, said{}, shell.say("genv lock touch "+marker))
	require.FileExists(t, marker)
}

// Users can't see who uses a device that a guard hides from them; root's service can.
func TestAttachAvoidsBusyDevicesThatAGuardHides(t *testing.T) {
	s := guarded(t, "enforce", map[int][]int{})
	stranger := startSleeper(t, 4243)
	s.uses(map[snapshot.PID]int{stranger: 0})
	s.show(map[int][]int{})
	s.serve()
	alice := s.person("alice", 4242)
	shell := alice.open("bash")
	require.Equal(t, said{text: "Attached GPUs 1, 2 (H100 80GB HBM3)\n"}, shell.sayAll("genv activate --gpus 2"), "device 0 is in use")
	require.Regexp(t, fmt.Sprintf("^Attached GPUs 0, 1, 2 .*\nWarning: GPU 0 is in use by process %d of uid 4243: .*sleep.*, with 1.0 GiB\n$", stranger),
		shell.sayAll("genv attach --index 0").text)
	require.Equal(t, genvtest.Result{Out: "0,1,2\n"}, alice.run("genv", "devices", "attach", "--eid", shell.pid(), "--count", "3"), "nothing new, no warning")

	s.sicken(func(d *gpus.Driver) { d.Devices[3].Fault = gpus.Broken })
	require.Eventually(t, func() bool { return strings.Contains(alice.run("genv", "gpus").Out, "failed") }, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, said{text: "Attached GPUs 0, 1, 2, 4 (H100 80GB HBM3)\n"}, shell.sayAll("genv attach --count 4"), "device 3 has failed")
	require.Contains(t, shell.sayAll("genv attach --index 3").text, "GPU 3 has failed and is given to no user")
}

// TestCommandsThatProcHides: root's service shows a command line to those who could read it in /proc, and to
// the group genv.
func TestCommandsThatProcHides(t *testing.T) {
	proctest.NeedPrograms(t, "unshare", "mount")
	proctest.NeedRoot(t)
	proctest.Need(t, exec.Command("unshare", "--mount", "mount", "-t", "proc", "proc", "/proc").Run() == nil, "a /proc of its own")
	t.Parallel()
	const alice, bob, all, operators = 4242, 4243, 4700, 4701
	for options, hides := range map[string]bool{"hidepid=0": false, "hidepid=1": true, "hidepid=2,gid=4700": true} {
		t.Run(options, func(t *testing.T) {
			s := newStation(t)
			job := startSleeper(t, alice)
			s.uses(map[snapshot.PID]int{job: 0})
			require.NoError(t, os.WriteFile(s.path("group"), []byte("root:x:0:\ngenv:x:4701:\n"), 0o644))
			s.serveBy("unshare", "--mount", "sh", "-c",
				`mount -t proc -o "$0" proc /proc && mount --bind "$1" /etc/group && exec genv host serve`, options, s.path("group"))
			for name, viewer := range map[string]struct {
				uid    int
				groups []uint32
				sees   bool
			}{
				"the owner": {uid: alice, sees: true}, "root": {uid: 0, sees: true}, "another": {uid: bob, sees: !hides},
				"a group of another": {uid: bob, groups: []uint32{5, 6}, sees: !hides}, "of genv": {uid: bob, groups: []uint32{5, operators}, sees: true},
				"of the group of the mount": {uid: bob, groups: []uint32{all}, sees: strings.Contains(options, "gid") || !hides},
			} {
				cmd := s.person(name, viewer.uid).command("genv", "gpus", "--format", "json")
				cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(viewer.uid), Gid: uint32(viewer.uid), Groups: viewer.groups}
				r := genvtest.Exec(t, cmd).OK(t)
				require.Contains(t, r.Out, fmt.Sprintf(`"pid":%d`, job), name)
				require.Equal(t, viewer.sees, strings.Contains(r.Out, "sleep"), "%s: %s", name, r.Out)
			}
			if strings.Contains(options, "hidepid=2") {
				return // in some containers it hides PID 1 from root
			}
			r := s.admin().run("unshare", "--mount", "sh", "-c",
				`mount -t proc -o "$0" proc /proc && exec genv enforce --interval 0 --dry-run --non-env-processes --audit-log off --format json`, options)
			require.Zero(t, r.Code, r.Err)
			require.Equal(t, hides, strings.Contains(r.Out, `"private_command":"/bin/sleep 1000000"`), r.Out)
			require.Equal(t, hides, strings.Count(r.Out, "sleep") == 1, "no text has it: %s", r.Out)
		})
	}
}

// An id in the environment variable counts for the user of the environment and for root, with
// people's commands and with the judgement: not for one who has read it in /proc.
func TestAnIDCountsOnlyForItsUser(t *testing.T) {
	s := parallelStation(t)
	s.serve()
	alice, mallory := s.person("alice", 4242), s.person("mallory", 4243)
	shell := alice.open("bash")
	require.Equal(t, said{}, shell.say("genv activate; genv attach --index 0"))
	eid := "GENV_ENVIRONMENT_ID=" + shell.pid()
	text := mallory.open("bash").say("genv activate; command -v nvidia-smi; genv deactivate").text
	shim, _, _ := strings.Cut(text, "\n") // a busy machine may lack the time to see that nothing is left
	before := s.stateFiles()
	for _, line := range [][]string{
		{"attach", "--count", "2"},
		{"attach", "--refresh"},
		{"detach"},
		{"config", "name", "x"},
		{"lock", "true"},
		{"envs", "activate", "--eid", shell.pid(), "--pid", shell.pid()},
		{"devices", "attach", "--index", "1"},
		{"devices", "detach"},
	} {
		r := mallory.with(eid).run(append([]string{"genv"}, line...)...)
		require.NotZero(t, r.Code, line)
		require.Regexp(t, "belongs to (uid )?(4242|.*4242)", r.Err, line)
	}
	status := mallory.with(eid).run("genv", "status")
	require.Equal(t, "Environment is not active\n", status.Out)
	require.Contains(t, status.Err, "belongs to uid 4242")
	require.Contains(t, alice.with(eid).run("genv", "status").Out, "Attached to GPUs at indices 0")
	require.Contains(t, mallory.with(eid).run(shim, "-L").Err, "showing all GPUs of this host: not your environment")
	require.Equal(t, before, s.stateFiles())

	setuid := s.path("setuid-sleep")
	require.NoError(t, proctest.WriteProgram(setuid, proctest.ReadFile(t, "/bin/sleep")))
	require.NoError(t, os.Chmod(setuid, os.ModeSetuid|0o755))
	uses := map[snapshot.PID]int{}
	start := func(u *account, words ...string) string {
		cmd := u.with(eid).command(words...)
		proctest.Start(t, cmd)
		require.Eventually(t, func() bool {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
			return err == nil && bytes.Contains(line, []byte("sleep\x00"))
		}, 10*time.Second, time.Millisecond)
		uses[snapshot.PID(cmd.Process.Pid)] = 0
		return fmt.Sprint(cmd.Process.Pid)
	}
	honest := []string{start(alice, "/bin/sleep", "1000"), start(alice, setuid, "1000"), start(s.admin(), "/bin/sleep", "1000")}
	forged := map[string]string{
		"a process":             start(mallory, "/bin/sleep", "1000"),
		"a setuid program":      start(mallory, setuid, "1000"),
		"root in a namespace":   start(mallory, "unshare", "-Ur", "/bin/sleep", "1000"),
		"in namespaces of PIDs": start(mallory, "unshare", "-Urp", "/bin/sleep", "1000"),
	}
	s.uses(uses)
	r := s.admin().run("genv", "enforce", "--interval", "0", "--dry-run", "--non-env-processes")
	for name, pid := range forged {
		require.Regexp(t, "Process "+pid+" .*(not running in|claims|environment)", r.Out, name)
	}
	for _, pid := range honest {
		require.NotContains(t, r.Out, " "+pid+" ")
	}
}

// What is lost or garbled is an error with a next step, for root and users, and nothing changes until then.
func TestALostStateFileIsUnknown(t *testing.T) {
	proctest.NeedRoot(t)
	s := newStation(t)
	hers := s.person("alice", alice)
	shell := hers.open("bash")
	require.Equal(t, said{}, shell.say("genv activate --gpus 2"))
	require.Zero(t, s.admin().run("genv", "envs").Code) // root has seen it
	for _, name := range []string{"envs", "devices"} {
		path := filepath.Join(s.state, name+".json")
		content := proctest.ReadFile(t, path)
		for _, lose := range []func() error{
			func() error { return os.Remove(path) },
			func() error { return os.WriteFile(path, []byte("garbage"), 0o666) },
		} {
			require.NoError(t, lose())
			r := s.admin().run("genv", "devices", "find", "--eid", shell.pid())
			require.NotZero(t, r.Code)
			require.Contains(t, r.Err, path)
			require.Contains(t, r.Err, "begin again with `sudo genv "+name+" --reset`")
			require.Contains(t, shell.say("genv devices find").text, path)
			require.NoError(t, os.WriteFile(path, content, 0o666)) // from a backup
			require.Equal(t, genvtest.Result{Out: "0,1\n"}, s.admin().run("genv", "devices", "find", "--eid", shell.pid()))
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(s.state, "envs.json"), []byte("garbage"), 0o666))
	require.Equal(t, genvtest.Result{Out: noEnvironments}, s.admin().run("genv", "envs", "--reset", "--format", "csv"))
}

// A uid without an account gets no environment, also where users write the state themselves.
func TestAUIDWithoutAnAccount(t *testing.T) {
	proctest.NeedRoot(t)
	s := newStation(t)
	const sshd = 60800 // has an account where tests run
	activate := []string{"sh", "-c", "env -u GENV_ROOT_DIR genv envs activate --eid 5 --username alice --pid $$"}
	s.person("sshd", sshd).run(activate...).OK(t)
	require.Contains(t, s.stateFiles()["envs.json"], `"sshd"`)
	require.Contains(t, s.person("alice", alice).run(activate...).Err, "uid 60901 has no account on this host, so it gets no environment")
	require.NotContains(t, s.stateFiles()["envs.json"], `"alice"`)
}

// `genv envs` in a container that shares the state folder changes nothing.
func TestAContainerCleansNothingUp(t *testing.T) {
	s := newStation(t)
	u := s.admin()
	shell := u.open("bash")
	require.Equal(t, said{}, shell.say("genv activate --gpus 2; genv devices >/dev/null"))
	before := s.stateFiles()
	for _, flags := range []string{"-Urpf --mount-proc", "-pf --mount-proc"} {
		if out, err := exec.Command("unshare", append(strings.Fields(flags), "true")...).CombinedOutput(); err != nil {
			t.Logf("unshare %s: %s", flags, out)
			continue
		}
		for _, root := range []string{s.path("root"), s.path("none")} {
			words := append(append([]string{"unshare"}, strings.Fields(flags)...), "sh", "-c",
				`mount --bind "$0" "$0" && GENV_ROOT_DIR=$1 exec genv envs query --query eid`, s.state, root) // as engines mount it
			r := u.run(words...)
			require.Equal(t, shell.pid()+"\n", r.Out, r.Err)
			require.Equal(t, 1, strings.Count(r.Err, "nothing was cleaned up"), r.Err)
			require.Equal(t, before, s.stateFiles(), "%s, root's notes in %s", flags, root)
		}
	}
	require.Equal(t, said{text: "0,1\n"}, shell.say("genv devices find"))
}

// TestWhatOneMachineFreesForReservations: `genv enforce` alone has the service know who may reserve, as soon as somebody
// asks, and takes from others what is reserved.
func TestWhatOneMachineFreesForReservations(t *testing.T) {
	s := parallelStation(t)
	s.serve()
	require.NoError(t, os.WriteFile(s.path("policy.yaml"), []byte("defaults: {warn: {rules: {reservations: 3s}}}\n"+
		"reservations: [{users: [\"%sshd\"], gpus: 6, longest: 3h}]\n"), 0o644))
	alice, bob := s.named()
	hers, his := alice.open("bash"), bob.open("bash")
	require.Equal(t, said{text: "Attached GPUs 0, 1, 2, 3 (H100 80GB HBM3)\n"}, his.sayAll("genv activate --id lent --gpus 4"))
	require.Contains(t, hers.sayAll("genv reserve --gpus 6 --for 1h").text, "only root may reserve GPUs while no policy is enforced here")
	cmd := s.admin().command("genv", "enforce", "--interval", "1h", "--policy", s.path("policy.yaml"), "--state-dir", s.path("admin"))
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }()
	refused := ""
	require.Eventually(t, func() bool {
		refused = his.sayAll("genv reserve --gpus 1 --for 1h").text
		return !strings.Contains(refused, "while no policy is enforced here")
	}, 30*time.Second, 50*time.Millisecond)
	require.Contains(t, refused, "the policy lets you reserve nothing here")
	require.Contains(t, hers.sayAll("genv reserve --gpus 7 --for 1h").text, "at most 6 GPUs")
	begun := time.Now()
	require.Regexp(t, `^Reserved: 6 GPUs from .*:\d\d UTC \(1h\), as [0-9a-f]{8}\nOthers use some of these GPUs: they are warned first, and lose them at about .*\n$`, hers.sayAll("TZ=UTC genv reserve --gpus 6 --for 1h").text)
	require.Regexp(t, `"until":"[^"]*:00Z"`, his.say("genv reserve --list --format json").text, "whole minutes, as they are printed")
	require.Contains(t, his.sayAll("genv attach --count 5").text, "6 GPUs of this host are reserved by sshd, until")
	require.Equal(t, "Environment is active (lent)\nAttached to GPUs at indices 0,1,2,3\n", statusOf(his), "he is warned first")
	require.Eventually(t, func() bool {
		return strings.HasSuffix(statusOf(his), "Environment is active (lent)\nAttached to GPUs at indices 2,3\n")
	}, 30*time.Second, 50*time.Millisecond, "what is reserved is seen at once, and not at the next look")
	require.GreaterOrEqual(t, time.Since(begun), 3*time.Second)
	require.Contains(t, his.sayAll("genv notices").text, "reserved")
	require.Equal(t, said{text: "Attached GPUs 0, 1, 4, 5, 6, 7 (H100 80GB HBM3)\n"}, hers.sayAll("genv activate --id staff --gpus 6"))
}
