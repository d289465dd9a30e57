package user_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// noEnvironments is what `genv envs` prints where there are none.
const noEnvironments = "ID,USER,NAME,CREATED,PID(S)\n"

func (u *account) environments() string {
	u.t.Helper()
	r := u.run("genv", "envs", "--format", "csv")
	require.Empty(u.t, r.Err)
	return r.Out
}

// From cron, at and sh there is no shell function: the command has what an
// activated shell would export, and leaves nothing behind.
func TestRunGivesTheCommandAnEnvironmentOfItsOwn(t *testing.T) {
	u := newStation(t).me()
	r := u.run("genv", "run", "--gpus", "2", "--gpu-memory", "4g", "--name", "nightly", "sh", "-c",
		`echo $GENV_SHELL $GENV_ENVIRONMENT_NAME $GENV_GPU_MEMORY $GENV_GPUS $CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES; `+
			`[ $GENV_ENVIRONMENT_ID = $PPID ] && genv status; genv envs query --query eid pids | sed s/$PPID/PID/g; nvidia-smi -L | wc -l`)
	require.Equal(t, "Attached GPUs 0, 1 (H100 80GB HBM3)\n", r.Err)
	require.Zero(t, r.Code)
	lines := strings.Split(r.Out, "\n")
	require.Equal(t, "1 nightly 4g 2 PCI_BUS_ID 0,1", lines[0])
	require.Contains(t, lines[1], "Environment is active (")
	require.Contains(t, r.Out, "\nPID,PID\n2\n", "the shims are in PATH")
	require.Equal(t, noEnvironments, u.environments())
	require.Equal(t, genvtest.Result{Out: "-1\n"}, u.run("genv", "run", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"), "no device was asked for")
	require.Equal(t, genvtest.Result{Out: "2\n"}, u.run("genv", "run", "-q", "--gpus", "2", "sh", "-c", "nvidia-smi -L | wc -l"))
	direct := u.run("genv", "run", "-q", "--gpus", "3", "nvidia-smi", "-L")
	require.Equal(t, 3, strings.Count(direct.Out, "\n"), direct)
}

func TestRunHasTheCommandsStatus(t *testing.T) {
	u := newStation(t).me()
	for _, tt := range []struct {
		words []string
		want  genvtest.Result
	}{
		{[]string{"sh", "-c", "exit 7"}, genvtest.Result{Code: 7}},
		{[]string{"--", "true"}, genvtest.Result{}},
		{[]string{"sh", "-c", "kill -KILL $$"}, genvtest.Result{Code: 128 + 9}},
		{[]string{"printf", "%s|", "a  b", "*", "--query", "x", "y", "--gpus"}, genvtest.Result{Out: "a  b|*|--query|x|y|--gpus|"}},
		{[]string{"no-such-program"}, genvtest.Result{Code: 127, Err: "genv run: exec: \"no-such-program\": executable file not found in $PATH\n"}},
		{[]string{"/no/such"}, genvtest.Result{Code: 127, Err: "genv run: exec: \"/no/such\": stat /no/such: no such file or directory\n"}},
		{[]string{"/etc/passwd"}, genvtest.Result{Code: 126, Err: "genv run: exec: \"/etc/passwd\": permission denied\n"}},
		{[]string{"--gpus", "9", "true"}, genvtest.Result{Code: 1, Err: "Requested more devices (9) than total available (8)\n"}},
		{nil, genvtest.Result{Code: 1, Err: "genv: missing command: write `genv run COMMAND`\n"}},
	} {
		require.Equal(t, tt.want, u.run(append([]string{"genv", "run"}, tt.words...)...), tt.words)
		require.Equal(t, noEnvironments, u.environments(), tt.words)
	}
	// What cannot be started after all leaves nothing behind either.
	broken := filepath.Join(u.home, "broken")
	require.NoError(t, proctest.WriteProgram(broken, []byte("#!/no/interpreter\n")))
	require.Equal(t, 127, u.run("genv", "run", "-q", "--gpus", "1", broken).Code)
	require.Equal(t, noEnvironments, u.environments())
}

// output is lines that a command writes.
type output struct {
	*bufio.Reader
	t *testing.T
}

func (o *output) line() string {
	o.t.Helper()
	return proctest.Try(o.ReadString('\n')).OK(o.t)
}

func outputOf(t *testing.T, cmd *exec.Cmd) *output {
	t.Helper()
	out := proctest.Try(cmd.StdoutPipe()).OK(t)
	require.NoError(t, cmd.Start())
	return &output{bufio.NewReader(out), t}
}

// started is a genv command that runs a shell script, which says "ready" first.
func (u *account) started(words, script string) (*exec.Cmd, *output) {
	u.t.Helper()
	cmd := u.command(append(strings.Fields(words), "sh", "-c", script)...)
	cmd.SysProcAttr.Setsid = true // no terminal
	out := outputOf(u.t, cmd)
	require.Equal(u.t, "ready\n", out.line())
	return cmd, out
}

// exitCode waits for a command, which may fail.
func exitCode(cmd *exec.Cmd) int {
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

func TestSignalsArePassedOn(t *testing.T) {
	_, _, locked := active(t)
	u := newStation(t).me()
	for name, signal := range map[string]syscall.Signal{
		"TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	} {
		for words, u := range map[string]*account{"genv run -q --gpus 1": u, "genv lock": locked} {
			cmd, lines := u.started(words, `trap "echo got; exit 5" `+name+`; echo ready; while :; do sleep 0.05; done`)
			require.NoError(t, cmd.Process.Signal(signal))
			require.Equal(t, "got\n", lines.line(), name)
			require.Equal(t, 5, exitCode(cmd), name)
		}
		require.Equal(t, noEnvironments, u.environments(), name)
	}
	cmd, _ := u.started("genv run -q", "echo ready; exec sleep 1000000")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 128+15, exitCode(cmd))
	require.Equal(t, noEnvironments, u.environments())
}

// nohup and sh's `&` start a program that ignores a signal: its command does too.
func TestRunLeavesIgnoredSignalsIgnored(t *testing.T) {
	u := newStation(t).me()
	r := u.run("sh", "-c", `trap "" HUP INT; genv run -q sh -c 'grep SigIgn /proc/self/status'`).OK(t)
	mask := proctest.Try(strconv.ParseUint(strings.Fields(r.Out)[1], 16, 64)).OK(t)
	require.EqualValues(t, 3, mask&3, "SIGHUP and SIGINT")
}

// A stop of genv stops the command, and a continuation continues it.
func TestRunIsStoppedWithItsCommand(t *testing.T) {
	u := newStation(t).me()
	cmd := u.command("genv", "run", "-q", "sh", "-c", "echo $$; exec sleep 1000000")
	cmd.SysProcAttr.Setpgid = true // a job of its own, as a shell makes it
	command := proctest.Try(strconv.Atoi(strings.TrimSpace(outputOf(t, cmd).line()))).OK(t)
	both := func(state string) func() bool {
		return func() bool {
			for _, pid := range []int{cmd.Process.Pid, command} {
				stat, err := proc.FS{}.Stat(snapshot.PID(pid))
				if err != nil || !strings.Contains(state, string(stat.State)) {
					return false
				}
			}
			return true
		}
	}
	for range 2 {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTSTP))
		require.Eventually(t, both("T"), 10*time.Second, 10*time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
		require.Eventually(t, both("SR"), 10*time.Second, 10*time.Millisecond)
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 128+15, exitCode(cmd))
}

// Where it could not be continued, as in a session of its own, a stop is ignored as it is for any program.
func TestRunIsNotStoppedForEver(t *testing.T) {
	u := newStation(t).me()
	cmd, lines := u.started("genv run -q", "echo ready; sleep 0.3; echo on")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTSTP))
	require.Equal(t, "on\n", lines.line())
	require.NoError(t, cmd.Wait())
}

func TestTheEnvironmentOfAKilledRunEndsWithTheCommand(t *testing.T) {
	u := newStation(t).me()
	cmd, lines := u.started("genv run -q --gpus 2", "echo ready; echo $$; exec sleep 1000000")
	command := proctest.Try(strconv.Atoi(strings.TrimSpace(lines.line()))).OK(t)
	t.Cleanup(func() { _ = syscall.Kill(command, syscall.SIGKILL) })
	eid := strconv.Itoa(cmd.Process.Pid)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	require.Equal(t, genvtest.Result{Out: eid + "," + strconv.Itoa(command) + "\n"}, u.run("genv", "envs", "query", "--query", "eid", "pids"))
	require.Equal(t, genvtest.Result{Out: "0,1\n"}, u.run("genv", "devices", "find", "--eid", eid))
	require.NoError(t, syscall.Kill(command, syscall.SIGKILL))
	require.Eventually(t, func() bool { return u.environments() == noEnvironments }, 10*time.Second, 20*time.Millisecond)
	require.Equal(t, genvtest.Result{Out: "\n"}, u.run("genv", "devices", "find", "--eid", eid))
}

// What a command leaves in the background keeps the environment.
func TestRunSaysWhatGoesOn(t *testing.T) {
	u := newStation(t).me()
	r := u.run("genv", "run", "-q", "--gpus", "1", "sh", "-c", "setsid sleep 1000000 >/dev/null 2>&1 & echo $!").OK(t)
	pid := proctest.Try(strconv.Atoi(strings.TrimSpace(r.Out))).OK(t)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	require.Regexp(t, fmt.Sprintf("^Environment [0-9]+ and its GPUs remain until its processes end: %d \\((setsid|sleep)\\)\n$", pid), r.Err)
	require.Contains(t, u.environments(), fmt.Sprintf(",%d\n", pid))
}

// A user who leaves a shell in which jobs run is notified, and no other user gets its
// devices meanwhile: tmux, nohup, setsid.
func TestDeactivateLeavesJobsTheirDevices(t *testing.T) {
	eachShell(t, func(t *testing.T, kind string) {
		s := newStation(t)
		shell := s.me().open(kind)
		require.Equal(t, said{text: "Attached GPUs 0, 1 (H100 80GB HBM3)\n"}, shell.sayAll("genv activate --gpus 2"))
		require.Empty(t, shell.say("nohup setsid sleep 1000000 >/dev/null 2>&1 & job=$!; sleep 0.2").status)
		job := strings.TrimSpace(shell.say("echo $job").text)
		require.Equal(t, said{text: fmt.Sprintf("Environment %s and its GPUs remain until its processes end: %s (sleep)\n", shell.pid(), job)}, shell.say("genv deactivate"))
		require.Equal(t, said{text: "Environment is not active\n"}, shell.say("genv status"))
		other := s.me().open(kind)
		require.Equal(t, said{text: "2\n"}, other.say("genv activate --gpus 1; echo $CUDA_VISIBLE_DEVICES"))
		require.Contains(t, shell.say("kill $job; wait; genv envs --format csv").text, noEnvironments)
		require.Equal(t, said{text: "0,2\n"}, other.say("genv attach --count 2; echo $CUDA_VISIBLE_DEVICES"))
	})
}

func TestAttachPrefersUnusedDevicesAndWarns(t *testing.T) {
	s := newStation(t)
	u := s.me()
	stranger := startSleeper(t, u.uid)
	s.uses(map[snapshot.PID]int{stranger: 0})
	shell := u.open("bash")
	require.Equal(t, said{text: "Attached GPUs 1, 2 (H100 80GB HBM3)\n"}, shell.sayAll("genv activate --gpus 2"), "device 0 is in use")
	said := shell.sayAll("genv attach --index 0")
	require.Empty(t, said.status)
	require.Regexp(t, fmt.Sprintf("^Attached GPUs 0, 1, 2 .*\nWarning: GPU 0 is in use by process %d of .*: .*sleep.*, with 1.0 GiB\n$", stranger), said.text)
	require.Equal(t, genvtest.Result{Out: "0,1,2\n"}, u.run("genv", "devices", "attach", "--eid", shell.pid(), "--count", "3"), "nothing new, no warning")

	refused := u.open("bash").say("genv activate; genv attach --index 1")
	require.Equal(t, "1", refused.status)
	require.Regexp(t, "^Device 1 is not available; with --wait it waits for your turn\n    GPU 1: environment "+shell.pid()+" of .* has it since [0-9T:-]+\n$", refused.text)
}

// sick puts another nvidia-smi before that of the station, and returns the assignment for it.
func (s *station) sick(script string) string {
	s.t.Helper()
	require.NoError(s.t, os.MkdirAll(s.path("sick"), 0o755))
	require.NoError(s.t, proctest.WriteProgram(s.path("sick/nvidia-smi"), []byte("#!/bin/sh\n"+script+"\n")))
	return "PATH=" + s.path("sick") + ":$PATH "
}

func TestAttachWithNvidiaSMIThatFails(t *testing.T) {
	s := parallelStation(t)
	shell := s.me().open("bash")
	require.Empty(t, shell.say("genv devices >/dev/null; genv activate").text)
	said := shell.sayAll(s.sick("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18") + "genv attach --index 0")
	require.Empty(t, said.status)
	require.Regexp(t, "(?m)^Attached GPU 0\nWarning: it is unknown whether other processes use GPU 0: .*Driver/library version mismatch", said.text)
}

// TestAttachWithNvidiaSMIThatTakesLong: what is unknown isn't unused, and delays no command for ever.
func TestAttachWithNvidiaSMIThatTakesLong(t *testing.T) {
	s := parallelStation(t)
	u := s.me()
	shell := u.open("bash")
	require.Empty(t, shell.say("genv devices >/dev/null; genv activate").text)
	hangs := s.sick("exec sleep 60")
	const waits = "finding out which GPUs are in use takes long: it may take up to 35s\n"
	begun := time.Now()
	said := shell.sayAll(hangs + "genv attach --index 1")
	require.Equal(t, "1", said.status)
	require.Equal(t, waits+"it is unknown whether GPU 1 is free, since nvidia-smi doesn't answer: -o attaches it all the same\n", said.text)
	require.Less(t, time.Since(begun), time.Minute)

	proctest.NeedRoot(t) // whose looks are kept
	s.devices(3)
	s.uses(map[snapshot.PID]int{startSleeper(t, u.uid): 0})
	require.Contains(t, s.admin().run("genv", "gpus").Out, "2 of 3 GPUs are free\n")
	slow := s.sick(`sleep 1.5; PATH=${PATH#*:} exec nvidia-smi "$@"`)
	require.Equal(t, waits+"Attached GPU 1 (H100 80GB HBM3)\n", shell.sayAll(slow+"genv attach").text, "slow is not never")
	said = shell.sayAll(s.sick("exec sleep 60") + "genv attach --count 2")
	require.Regexp(t, "^"+waits+"Attached GPUs 1, 2 .*\nWarning: it is unknown whether other processes use GPU 2: there was no answer within 10s; what root saw at .* counts\n$", said.text)
	said = shell.sayAll(s.sick("exec sleep 60") + "genv attach --count 3")
	require.Contains(t, said.text, "Requested more devices (3) than currently available (2); it is unknown whether GPU 0 is free")
	look := s.path("root/run/last-look.json")
	old := regexp.MustCompile(`"time": *"20..`).ReplaceAllString(genvtest.Read(t, look), `"time":"2025`)
	require.NoError(t, os.WriteFile(look, []byte(old), 0o644))
	require.Empty(t, shell.say("genv detach").status)
	require.Contains(t, shell.sayAll(s.sick("exec sleep 60")+"genv attach --index 2").text, "it is unknown whether GPU 2 is free", "that look is too old")
}
