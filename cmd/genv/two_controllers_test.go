package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// wait waits until a controller has said something on stderr, and returns that line.
func (d *background) wait(says string) string {
	d.t.Helper()
	line := func() string {
		for _, line := range strings.Split(d.said(), "\n") {
			if strings.Contains(line, says) {
				return line
			}
		}
		return ""
	}
	d.next(func(enforcement.CycleDocument) bool { return line() != "" })
	return line()
}

// says waits for words on stderr, which may arrive after the document of their cycle.
func (d *background) says(words string) {
	d.t.Helper()
	require.Eventually(d.t, func() bool { return strings.Contains(d.said(), words) }, time.Minute, 10*time.Millisecond, "%s", words)
}

// Over a real sshd and sudo: a second controller is told at its start, the first one in its
// next cycle, and both record it. A restart, also after kill -9, isn't a second controller,
// and one that was killed is forgotten.
func TestTwoControllers(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02"), Genv: genvProgram(t)})
	dir := t.TempDir()
	log := func(name string) string { return filepath.Join(dir, name+".jsonl") }
	recorded := func(name string) string {
		data, err := os.ReadFile(log(name))
		require.NoError(t, err)
		return string(data)
	}
	begin := func(name string, more ...string) *background {
		args := []string{"-F", f.SSHConfig(), "-H", "gpu-01,gpu-02", "--interval", "1", "--state-dir", filepath.Join(dir, name), "--audit-log", log(name)}
		d := startDaemon(t, nil, append(args, more...)...)
		d.next(func(c enforcement.CycleDocument) bool { return c.Answered == 2 })
		return d
	}
	const one = "Another controller enforces gpu-01, gpu-02 with another policy, as reported there: "
	first := begin("first")
	second := begin("second", "--no-env-memory", "-q")
	second.says(one)
	second.says("Stop one of them")
	first.wait("enforces gpu-01, gpu-02 with another policy") // perhaps first of one of them, then of both
	require.Equal(t, 1, strings.Count(recorded("second"), `"kind":"controller"`), recorded("second"))
	for _, name := range []string{"first", "second"} {
		require.Contains(t, []int{1, 2}, strings.Count(recorded(name), `"kind":"controller"`), recorded(name))
		require.Contains(t, recorded(name), `"action":"other-controller"`)
	}
	require.Regexp(t, `"kind":"controller","run":"\w+","cycle":1,`, recorded("second"), "in its first cycle")

	second.signal(os.Kill)
	second.end()
	second = begin("second", "--no-env-memory")
	second.says(one)
	second.signal(os.Kill)
	second.end()
	ended := first.wait("The other controller no longer enforces gpu-01, gpu-02: ")
	require.Equal(t, 1, strings.Count(first.said(), "enforces gpu-01, gpu-02 with another policy"), "the restart was none")
	require.Contains(t, ended, "process")
	require.Contains(t, recorded("first"), `"action":"other-controller-ended"`)

	same := begin("same", "--env-memory")
	same.says("Another controller enforces gpu-01, gpu-02 with the same policy")
	require.NotContains(t, same.said(), "another policy")
	first.wait("with the same policy")
	dry := begin("dry", "--dry-run")
	require.NotContains(t, dry.said(), "nother controller")
	same.signal(os.Interrupt)
	same.end()
	require.NotContains(t, same.said(), "no longer enforces")
}

// `genv enforce` on a host is a controller of it, and so is a controller of 1.4.3, of which
// only the reports are known.
func TestALocalController(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvProgram(t)})
	host := f.Host("gpu-01")
	_, errs := ssh(t, f, "gpu-01", `{"terminate": {"processes": []}, "detach": {}}`, "sudo", "-n", "genv", "usage", "execute")
	require.Empty(t, errs)
	local := exec.Command(genvProgram(t), "enforce", "--interval", "1", "--non-env-processes")
	driver := filepath.Join(filepath.Dir(filepath.Dir(genvProgram(t))), "driver")
	local.Env = append(os.Environ(), append(host.Variables(), "HOME="+t.TempDir(), "GENV_AUDIT_LOG=off", "PATH="+driver+":"+os.Getenv("PATH"))...)
	said := new(background) // for its stderr alone
	local.Stderr = said
	require.NoError(t, local.Start())
	t.Cleanup(func() {
		_ = local.Process.Kill()
		_ = local.Wait()
	})
	require.Eventually(t, func() bool { return strings.Contains(said.said(), "a policy that is not known (genv 1.4.3?)") }, time.Minute, 10*time.Millisecond)
	remote := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "1")
	remote.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
	remote.says("Another controller enforces gpu-01 with another policy, as reported there: root on ")
	require.Eventually(t, func() bool {
		return strings.Contains(said.said(), "Another controller enforces this machine with another policy, as reported there: root on ")
	}, time.Minute, 10*time.Millisecond)
}
