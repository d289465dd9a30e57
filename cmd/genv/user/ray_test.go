package user_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
