package user_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// TestLLM: a model is served in an environment of its own, listed, and talked to. The server is
// constructed after Ollama's API documentation (testdata/llm/ollama).
func TestLLM(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(python); err != nil {
		t.Skip("the server in place of Ollama needs " + python)
	}
	stub := proctest.Try(filepath.Abs("testdata/llm")).OK(t)
	s := newStation(t)
	s.env[0] += ":" + stub
	u := s.me()
	serve := u.command("genv", "llm", "serve", "--gpus", "1", "--host", "localhost", "llama3")
	stderr := proctest.Try(serve.StderrPipe()).OK(t)
	require.NoError(t, serve.Start())
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = serve.Process.Kill()
			_ = serve.Wait()
		}
	})
	lines := bufio.NewScanner(stderr)
	var said []string
	for lines.Scan() && !strings.Contains(lines.Text(), "is served at") {
		said = append(said, lines.Text())
	}
	require.Contains(t, strings.Join(said, "\n"), "Attached GPU 0 (H100 80GB HBM3)\n")
	require.Contains(t, said, "ollama: success", "it was downloaded")
	require.Regexp(t, `^llama3 is served at http://localhost:\d+: genv llm attach llama3$`, lines.Text())

	require.Regexp(t, `^llama3,\d+,[^,]+,(\d+),[^,]+,[\d ]+\n$`, u.run("genv", "llm", "ps", "--format", "csv", "--no-header").Out)
	require.Regexp(t, `^MODEL       PORT    CREATED              EID     USER +PID\(S\)\nllama3 `, u.run("genv", "llms").Out)
	require.Regexp(t, `"schema":"genv.llm/1".*"port":\d+.*"pids":\[\d+`, u.run("genv", "llm", "--format", "json").Out)
	require.Contains(t, u.run("genv", "envs", "--format", "csv").Out, "llm/llama3/")

	attach := u.command("genv", "llm", "attach", "llama3")
	attach.Stdin = strings.NewReader("one\n\ntwo\n")
	require.Equal(t, "one, on 0\ntwo, on 0\n", string(proctest.Try(attach.Output()).OK(t)))
	require.Contains(t, u.run("genv", "llm", "attach", "--port", "1", "llama3").Err, "no environment of this host serves llama3")
	require.NotZero(t, u.run("genv", "llm", "attach").Code)

	require.NoError(t, serve.Process.Signal(syscall.SIGTERM))
	for lines.Scan() {
	}
	_ = serve.Wait()
	ended = true
	require.Empty(t, u.run("genv", "llm", "ps", "--format", "csv", "--no-header").Out)
	require.NotContains(t, u.run("genv", "envs", "--format", "csv").Out, "llm/")
}

// rayTasks are two tasks, each in a worker process of its own, as Ray runs them, and then one
// that fails. Ray itself isn't needed: a task is a function in such a process.
const rayTasks = `
import multiprocessing
import sys


def task(barrier, out, gpus, fails):
    with environment(gpus) as eid:
        barrier.wait()
        out.put((os.environ["CUDA_VISIBLE_DEVICES"], genv("envs", "find", "--pid", str(os.getpid())) == eid, os.environ["GENV_ENVIRONMENT_ID"] == eid))
        barrier.wait()
        if fails:
            sys.exit(1)
    out.put(("CUDA_VISIBLE_DEVICES" in os.environ, "GENV_ENVIRONMENT_ID" in os.environ))


barrier, out = multiprocessing.Barrier(3), multiprocessing.Queue()
tasks = [multiprocessing.Process(target=task, args=(barrier, out, gpus, gpus == 2)) for gpus in (1, 2)]
for t in tasks:
    t.start()
barrier.wait()
print(sorted(len(devices.split(",")) for devices, found, claimed in [out.get(), out.get()] if found and claimed))
print(genv("envs", "--format", "csv", "--no-header").count(",ray,"))
barrier.wait()
for t in tasks:
    t.join()
print(out.get(), [t.exitcode for t in tasks], repr(genv("envs", "--format", "csv", "--no-header")))
`

// TestRay runs the program in docs/ray.md.
func TestRay(t *testing.T) {
	t.Parallel()
	if err := exec.Command(python, "--version").Run(); err != nil {
		t.Skip("python3 is not installed: ", err)
	}
	_, rest, found := strings.Cut(proctest.ReadText(t, "../../../docs/ray.md"), "```python\n")
	require.True(t, found)
	program, _, found := strings.Cut(rest, "```")
	require.True(t, found)
	s := newStation(t)
	require.NoError(t, os.WriteFile(s.path("ray.py"), []byte(program+rayTasks), 0o644))
	answer := s.me().run(python, "-B", s.path("ray.py"))
	require.Equal(t, "[1, 2]\n2\n(False, False) [0, 1] ''\n", answer.Out, answer.Err)
}

// programs is a folder for PATH where genv is a program that runs it as this user, no matter who starts it.
func (u *account) programs() string {
	u.t.Helper()
	genv := proctest.Try(lookPath(u.environ(), "genv")).OK(u.t)
	as := ""
	if u.uid != os.Geteuid() {
		proctest.NeedPrograms(u.t, "setpriv")
		as = fmt.Sprintf("setpriv --reuid %d --regid %d --clear-groups", u.uid, u.uid)
	}
	dir := filepath.Join(u.home, "bin")
	require.NoError(u.t, os.Mkdir(dir, 0o755))
	require.NoError(u.t, proctest.WriteProgram(filepath.Join(dir, "genv"), fmt.Appendf(nil, "#!/bin/sh\nexec %s %s \"$@\"\n", as, genv)))
	return dir
}

// TestScripts runs the scripts of testdata/script, each on a station of its own
// with two live processes of its user, $PID and $OTHER.
func TestScripts(t *testing.T) {
	scripts := proctest.Try(filepath.Glob("testdata/script/*.txtar")).OK(t)
	require.NotEmpty(t, scripts)
	for _, script := range scripts {
		t.Run(filepath.Base(script), func(t *testing.T) {
			s := newStation(t)
			u := s.me().with("PID="+pidText(startSleeper(t, s.me().uid)), "OTHER="+pidText(startSleeper(t, s.me().uid)),
				"UID="+strconv.Itoa(s.me().uid), "GENV_AUDIT_LOG="+s.path("audit.jsonl"))
			u.env = append(u.env, "PATH="+u.programs()+":"+strings.TrimPrefix(s.env[0], "PATH="))
			testscript.Run(t, testscript.Params{Files: []string{script}, WorkdirRoot: s.dir, Setup: func(env *testscript.Env) error {
				for _, entry := range u.environ() {
					name, value, _ := strings.Cut(entry, "=")
					env.Setenv(name, value)
				}
				return exec.Command("chown", "-R", strconv.Itoa(u.uid), env.WorkDir).Run()
			}})
		})
	}
}

// python is Debian's own, which has python3-psutil.
const python = "/usr/bin/python3"

// sdkClient is testdata/sdk/client.py at work.
type sdkClient struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (u *account) sdk(args ...string) *sdkClient {
	u.t.Helper()
	file := proctest.Try(filepath.Abs("testdata/sdk/client.py")).OK(u.t)
	cmd := u.command(append([]string{python, "-B", file}, args...)...)
	cmd.Stderr = os.Stderr
	in, out := proctest.StartPiped(u.t, cmd)
	c := &sdkClient{t: u.t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	u.t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() }) // it has ended, or ends with its input
	return c
}

// says waits for what the client prints.
func (c *sdkClient) says(line string) {
	c.t.Helper()
	require.Equal(c.t, line+"\n", proctest.Try(c.out.ReadString('\n')).OK(c.t, "the client has failed"))
}

// end has the client go on after its last line.
func (c *sdkClient) end() {
	c.t.Helper()
	proctest.Try(io.WriteString(c.in, "\n")).OK(c.t)
	require.NoError(c.t, c.cmd.Wait())
}

func needsPsutil(t *testing.T) {
	t.Helper()
	proctest.Need(t, exec.Command(python, "-c", "import psutil").Run() == nil, "python3-psutil")
}

// workLikeTheSDK does with genv's commands what `client.py work` does, and returns an error
// if a change of its own was lost.
func (u *account) workLikeTheSDK(pid snapshot.PID, eid, index string, rounds int) error {
	genv := func(want string, args ...string) error {
		out, err := u.command(append([]string{"genv"}, args...)...).Output()
		if err != nil || string(out) != want {
			return fmt.Errorf("%s: genv %q printed %q instead of %q: %w", eid, args, out, want, err)
		}
		return nil
	}
	if err := genv("", "envs", "activate", "--pid", pidText(pid), "--eid", eid); err != nil {
		return err
	}
	last, attached := "", ""
	for n := 1; n <= rounds; n++ {
		step, next := []string{"devices", "attach", "--eid", eid, "--index", index}, index
		if attached != "" {
			step, next = []string{"devices", "detach", "--eid", eid, "--index", index}, ""
		}
		for _, err := range []error{
			genv(last+"\n", "envs", "query", "--eid", eid, "--query", "config.gpus"),
			genv(attached+"\n", "devices", "find", "--eid", eid),
			genv("", "envs", "config", "--eid", eid, "gpus", "--count", strconv.Itoa(n)),
			genv(next+"\n", step...),
		} {
			if err != nil {
				return err
			}
		}
		last, attached = strconv.Itoa(n), next
	}
	return nil
}

// TestTheSDKWorksBesideGenv: clients of both kinds change one state folder at once, and no change is lost.
func TestTheSDKWorksBesideGenv(t *testing.T) {
	t.Parallel()
	needsPsutil(t)
	s := newStation(t)
	u := s.me()
	require.Zero(t, u.run("genv", "devices").Code) // makes the files
	u.run("genv", "envs", "activate", "--pid", pidText(startSleeper(t, u.uid)), "--eid", "first").OK(t)
	const rounds = 9 // odd, so that all are attached at the end
	var clients []*sdkClient
	var commands errgroup.Group
	want := map[string]string{"first": ""}
	for i := range 3 {
		python, ours := fmt.Sprintf("python-%d", i), fmt.Sprintf("go-%d", i)
		clients = append(clients, u.sdk("work", python, strconv.Itoa(i), strconv.Itoa(10*rounds+1)))
		pid := startSleeper(t, u.uid)
		commands.Go(func() error { return u.workLikeTheSDK(pid, ours, strconv.Itoa(i+3), rounds) })
		want[python], want[ours] = strconv.Itoa(i), strconv.Itoa(i+3)
	}
	require.NoError(t, commands.Wait())
	for _, client := range clients {
		client.says("done")
	}
	for eid, devices := range want {
		require.Equal(t, genvtest.Result{Out: devices + "\n"}, u.run("genv", "devices", "find", "--eid", eid), eid)
	}
	require.Equal(t, genvtest.Result{Out: fmt.Sprintf("%d\n", 10*rounds+1)}, u.run("genv", "envs", "query", "--eid", "python-1", "--query", "config.gpus"))
	u.sdk("check").ends()
	files := s.stateFiles()
	require.Len(t, proctest.Try(snapshot.DecodeEnvironments([]byte(files["envs.json"]))).OK(t), len(want))
	proctest.Try(snapshot.DecodeDevices([]byte(files["devices.json"]))).OK(t)

	for _, client := range clients { // their environments end with them
		client.end()
	}
	require.Eventually(t, func() bool { // one look may lack the time to read all of this user's processes
		return u.run("genv", "devices", "find", "--eid", "python-1") == genvtest.Result{Out: "\n"}
	}, time.Minute, 100*time.Millisecond)
	require.Equal(t, genvtest.Result{}, u.run("genv", "envs", "query", "--eid", "python-1", "--query", "eid"))
	u.sdk("check").ends()
}

// ends waits for a client that asks for nothing.
func (c *sdkClient) ends() {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Wait())
}

// TestTheSDKAndGenvTakeTheSameLocks: what one has, the other waits for, both ways.
func TestTheSDKAndGenvTakeTheSameLocks(t *testing.T) {
	needsPsutil(t)
	_, shell, u := active(t) // on devices 1 and 3
	holder := u.sdk("hold", shell.pid())
	holder.says("held")
	config := u.command("genv", "envs", "config", "--eid", shell.pid(), "gpus", "--count", "2")
	require.NoError(t, config.Start())
	holder.end()
	require.NoError(t, config.Wait())
	require.Equal(t, genvtest.Result{Out: "2\nrenamed\n"}, genvtest.Result{Out: u.run("genv", "config", "gpus").Out + u.run("genv", "config", "name").Out}, "both changes")

	device := u.sdk("lock", "3")
	device.says("held")
	marker := filepath.Join(u.home, "ran")
	locked := u.command("genv", "lock", "touch", marker)
	stderr := proctest.Try(locked.StderrPipe()).OK(t)
	require.NoError(t, locked.Start())
	line := proctest.Try(bufio.NewReader(stderr).ReadString('\n')).OK(t)
	require.Contains(t, line, "waiting for ")
	require.Contains(t, line, "devices/3.lock")
	require.NoFileExists(t, marker)
	device.end()
	require.NoError(t, locked.Wait())
	require.FileExists(t, marker)

	ours := u.command("genv", "lock", "sh", "-c", "echo have; read line")
	in, out := proctest.StartPiped(t, ours)
	require.Equal(t, "have\n", proctest.Try(bufio.NewReader(out).ReadString('\n')).OK(t))
	device = u.sdk("lock", "1")
	require.Equal(t, 9, u.run("flock", "-n", "-E", "9", filepath.Join(filepath.Dir(u.state), "state", "devices", "1.lock"), "true").Code)
	require.NoError(t, in.Close())
	_ = ours.Wait() // the status of read
	device.says("held")
	device.end()
}
