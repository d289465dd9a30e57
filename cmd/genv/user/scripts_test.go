package user_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// TestLLM: a model is served in an environment of its own, listed, and talked to. The server is
// constructed after Ollama's API documentation (testdata/llm/ollama).
func TestLLM(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(python); err != nil {
		t.Skip("the server in place of Ollama needs " + python)
	}
	stub, err := filepath.Abs("testdata/llm")
	require.NoError(t, err)
	s := newStation(t)
	s.env[0] += ":" + stub
	u := s.me()
	serve := u.command("genv", "llm", "serve", "--gpus", "1", "--host", "localhost", "llama3")
	stderr, err := serve.StderrPipe()
	require.NoError(t, err)
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

	listed := u.run("genv", "llm", "ps", "--format", "csv", "--no-header").Out
	require.Regexp(t, `^llama3,\d+,[^,]+,(\d+),[^,]+,[\d ]+\n$`, listed)
	require.Regexp(t, `^MODEL       PORT    CREATED              EID     USER +PID\(S\)\nllama3 `, u.run("genv", "llms").Out)
	require.Regexp(t, `"schema":"genv.llm/1".*"port":\d+.*"pids":\[\d+`, u.run("genv", "llm", "--format", "json").Out)
	require.Contains(t, u.run("genv", "envs", "--format", "csv").Out, "llm/llama3/")

	attach := u.command("genv", "llm", "attach", "llama3")
	attach.Stdin = strings.NewReader("one\n\ntwo\n")
	out, err := attach.Output()
	require.NoError(t, err)
	require.Equal(t, "one, on 0\ntwo, on 0\n", string(out))
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
	document, err := os.ReadFile("../../../docs/ray.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(document), "```python\n")
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
	genv, err := lookPath(u.environ(), "genv")
	require.NoError(u.t, err)
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
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	require.NoError(t, err)
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
