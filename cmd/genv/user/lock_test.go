package user_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func pidText(pid snapshot.PID) string { return strconv.Itoa(int(pid)) }

// active is a user's shell on devices 1 and 3, and another user of the same
// environment who types commands without a shell.
func active(t *testing.T) (*station, *terminal, *account) {
	s := newStation(t)
	shell := s.me().open("bash")
	require.Equal(t, said{}, shell.say("genv activate; genv attach --index 1,3"))
	return s, shell, s.me().with("GENV_ENVIRONMENT_ID=" + shell.pid())
}

func TestLockHasTheCommandsStatus(t *testing.T) {
	_, _, u := active(t)
	require.Equal(t, genvtest.Result{Code: 7}, u.run("genv", "lock", "sh", "-c", "exit 7"))
	require.Equal(t, genvtest.Result{}, u.run("genv", "lock", "--", "true"))
	require.Equal(t, genvtest.Result{Code: 128 + 15}, u.run("genv", "lock", "sh", "-c", "kill -TERM $$"))
	require.Equal(t, genvtest.Result{Out: "a  b|*|$HOME|\n"}, u.run("genv", "lock", "printf", "%s|%s|%s|\n", "a  b", "*", "$HOME"))
	require.Equal(t, genvtest.Result{Out: "--help -v\n"}, u.run("genv", "lock", "echo", "--help", "-v"))
	u.run("genv", "lock", "/no/such/program").Exits(t, 127, "/no/such/program")
	require.Equal(t, 127, u.run("genv", "lock", "no-such-program").Code)
	require.Equal(t, 126, u.run("genv", "lock", "/etc/passwd").Code)
}

// 1.4.3's SDK takes the same locks as flock(1) does.
func TestLockExcludesFlockBothWays(t *testing.T) {
	proctest.NeedPrograms(t, "flock")
	s, _, u := active(t)
	file := func(index string) string { return filepath.Join(s.state, "devices", index+".lock") }
	for index, code := range map[string]int{"1": 9, "3": 9, "0": 0} {
		require.Equal(t, genvtest.Result{Code: code}, u.run("genv", "lock", "flock", "-n", "-E", "9", file(index), "true"), "device %s", index)
	}
	holder := u.command("flock", file("3"), "sh", "-c", "echo held; read line")
	in, out := proctest.StartPiped(t, holder)
	require.Equal(t, "held\n", (&output{bufio.NewReader(out), t}).line())

	marker := s.path("ran")
	waiting := u.command("genv", "lock", "touch", marker)
	require.NoError(t, waiting.Start())
	require.Equal(t, genvtest.Result{Code: 9}, u.orHeld(u.run("flock", "-w", "5", "-E", "9", "-n", file("1"), "true"), file("1")), "device 1 is had, device 3 is waited for")
	require.NoFileExists(t, marker)
	require.NoError(t, in.Close())
	require.NoError(t, waiting.Wait())
	require.FileExists(t, marker)
	_ = holder.Wait() // the status of read
	require.Equal(t, genvtest.Result{}, u.run("flock", "-n", file("1"), "true"), "the locks end with the command")
}

// orHeld tries again until the lock is held: the process that takes it was only just started.
func (u *account) orHeld(r genvtest.Result, path string) genvtest.Result {
	for range 1000 {
		if r.Code != 0 {
			return r
		}
		r = u.run("flock", "-n", "-E", "9", path, "true")
	}
	u.t.Fatal("the lock is not taken")
	return r
}

// Who is interrupted while waiting for a lock doesn't run the command.
func TestLockGivesUpWhenInterrupted(t *testing.T) {
	s, _, u := active(t)
	u.run("genv", "lock", "true").OK(t)
	held := proctest.Try(os.OpenFile(filepath.Join(s.state, "devices", "3.lock"), os.O_RDWR, 0)).OK(t)
	defer held.Close()
	require.NoError(t, syscall.Flock(int(held.Fd()), syscall.LOCK_EX))
	cmd := u.command("genv", "lock", "touch", s.path("ran"))
	stderr := proctest.Try(cmd.StderrPipe()).OK(t)
	require.NoError(t, cmd.Start())
	lines := output{bufio.NewReader(stderr), t}
	waiting := lines.line()
	require.Contains(t, waiting, "waiting for "+held.Name())
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	gaveUp := lines.line()
	require.Contains(t, gaveUp, "3.lock is locked by")
	for _, line := range []string{waiting, gaveUp} {
		require.Contains(t, line, strconv.Itoa(os.Getpid()), "the holder is named")
	}
	require.Equal(t, 1, exitCode(cmd))
	require.NoFileExists(t, s.path("ran"))
}

// On a terminal a Ctrl-C reaches the command itself. It must not come twice:
// many programs drop everything at the second one.
func TestCtrlCComesOnce(t *testing.T) {
	_, _, u := active(t)
	script := `n=0; trap 'n=$((n+1)); echo got $n' INT; trap 'echo end $n; exit 3' TERM; echo ready; while :; do sleep 0.05; done`
	cmd := u.command("genv", "lock", "sh", "-c", script)
	terminal := proctest.Try(pty.Start(cmd)).OK(t)
	defer terminal.Close()
	lines := output{bufio.NewReader(terminal), t}
	expect := func(want string) {
		for {
			line := lines.line()
			if strings.Contains(line, want) {
				return
			}
			require.NotContains(t, line, "got 2")
		}
	}
	expect("ready")
	proctest.Try(terminal.Write([]byte{3})).OK(t)
	expect("got 1")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	expect("end 1")
	require.Equal(t, 3, exitCode(cmd))
}

// TestAHostMaySpareProcesses: with GENV_TERMINATE_PROCESSES=0 a report detaches,
// and sends no signal; what was not done is reported.
func TestAHostMaySpareProcesses(t *testing.T) {
	s := newStation(t)
	shell := s.me().open("bash")
	require.Equal(t, said{}, shell.say("genv activate --gpus 1 --name x"))
	pid := startSleeper(t, s.me().uid)
	s.uses(map[snapshot.PID]int{pid: 5})
	env := proctest.Try(snapshot.DecodeEnvironments([]byte(s.stateFiles()["envs.json"]))).OK(t)
	document := proctest.Try(snapshot.EncodeEnvironments(env)).OK(t)
	report := fmt.Sprintf(`{"terminate": {"processes": [{"pid": %d, "used_gpu_memory": [{"index": 5, "gpu_memory": "1000mi"}], "eid": null}]}, "detach": {"0": %s}}`, pid, document)
	execute := func(u *account) genvtest.Result {
		cmd := u.command("genv", "usage", "execute")
		cmd.Stdin = strings.NewReader(report)
		return genvtest.Exec(t, cmd)
	}

	spared := execute(s.admin().with("GENV_TERMINATE_PROCESSES=0", "GENV_AUDIT_LOG=off")).OK(t)
	require.Equal(t, fmt.Sprintf("process %d: refused: GENV_TERMINATE_PROCESSES=0 on this host\n", pid), spared.Err)
	require.True(t, strings.HasPrefix(spared.Out, "Detaching environment "+shell.pid()+" ") && strings.Count(spared.Out, "\n") == 1, spared.Out)
	local := s.admin().with("GENV_TERMINATE_PROCESSES=0", "GENV_AUDIT_LOG=off").run("genv", "enforce", "--interval", "0", "--non-env-processes")
	require.NotContains(t, local.Out, "Terminating")
	require.Equal(t, said{}, shell.say(fmt.Sprintf("kill -0 %d", pid)))

	done := execute(s.admin().with("GENV_TERMINATE_PROCESSES=1", "GENV_AUDIT_LOG=off"))
	require.Equal(t, genvtest.Result{Out: fmt.Sprintf("Terminating process %d from environment N/A that is running on GPU(s) 5\n", pid)}, done)
}
