package shell_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// TestMain lets the test binary be the genv that the shells call: the change
// that it answers with comes from the FAKE_* variables, as the state files would say.
func TestMain(m *testing.M) {
	if os.Getenv("FAKE_GENV") != "" {
		os.Exit(fakeGenv(os.Args[1:]))
	}
	remove, err := sshd.Private() // from what /etc/zsh/zshenv prints, above all
	if err != nil {
		fmt.Fprintln(os.Stderr, "The tests see this machine's own accounts and shell files:", err)
	}
	code := m.Run()
	remove()
	os.Exit(code)
}

func fakeGenv(args []string) int {
	fmt.Printf("args:%q\n", args)
	if args[0] != "activate" && args[0] != "deactivate" && args[0] != "config" {
		return 7
	}
	caller, err := shell.CallerFrom(os.Getenv)
	if err != nil {
		fmt.Fprint(os.Stderr, err)
		return 1
	}
	fmt.Printf("pid:%d kind:%s\n", caller.PID, caller.Kind)
	if err := caller.Apply(fakeChange(args)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Getenv("FAKE_FAILURE") != "" {
		return 3 // after the answer: it must not be evaluated all the same
	}
	return 0
}

func fakeChange(args []string) shell.Edit {
	gpus := 1
	a := shell.Active{
		EID:     "1667",
		Config:  snapshot.EnvConfig{Name: os.Getenv("FAKE_NAME"), GPUMemory: snapshot.MustMemory("4g"), GPUs: &gpus},
		Devices: []snapshot.DeviceIndex{0},
	}
	switch args[0] {
	case "deactivate":
		return shell.Deactivate()
	case "config":
		a.Devices = append(a.Devices, 3)
		return shell.Update(a)
	}
	return shell.Activate(a, len(args) > 1 && args[1] == "--no-prompt")
}

// session is a real shell without any of the user's files.
type session struct {
	t       *testing.T
	kind    shell.Kind
	options []string // of the shell
	environ []string
}

func newSession(t *testing.T, kind shell.Kind, environ ...string) *session {
	t.Helper()
	proctest.NeedPrograms(t, string(kind))
	path, err := exec.LookPath(string(kind))
	require.NoError(t, err)
	options := map[shell.Kind][]string{shell.Bash: {path, "--norc", "--noprofile"}, shell.Zsh: {path, "-f"}}
	// Built with the race detector, a program would sleep a second at its end.
	environ = append([]string{"FAKE_GENV=1", "GORACE=atexit_sleep_ms=0", "PATH=/usr/bin:/bin", "HOME=" + t.TempDir()}, environ...)
	return &session{t: t, kind: kind, options: options[kind], environ: environ}
}

type result struct {
	stdout, stderr string
	code           int
}

// run has the shell read the init code, as users do, and then a script.
func (s *session) run(script string, options ...string) result {
	s.t.Helper()
	return s.raw("init='"+s.initFile()+"'\neval \"$(cat \"$init\")\"\n"+script, options...)
}

func (s *session) initFile() string {
	s.t.Helper()
	exe, err := os.Executable()
	require.NoError(s.t, err)
	code, err := shell.Init(shell.InitOptions{
		Kind: s.kind, Exe: exe, Shims: "/opt/it's a folder/shims", Preactivate: shell.PreactivationFrom(s.getenv),
	})
	require.NoError(s.t, err)
	file := filepath.Join(s.t.TempDir(), "init")
	require.NoError(s.t, os.WriteFile(file, []byte(code), 0o600))
	return file
}

// typed has an interactive shell read the init code and then a script, line by line, each after a prompt.
func (s *session) typed(script string) result {
	s.t.Helper()
	return s.start("eval \"$(cat '"+s.initFile()+"')\"\n"+script, "-i")
}

func (s *session) raw(script string, options ...string) result {
	s.t.Helper()
	return s.start("", append(options, "-c", script)...)
}

// start runs the shell, which reads what is typed on its stdin.
func (s *session) start(typed string, options ...string) result {
	s.t.Helper()
	cmd := exec.Command(s.options[0], append(slices.Clone(s.options[1:]), options...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Env, cmd.Stdout, cmd.Stderr = strings.NewReader(typed), s.environ, &stdout, &stderr
	_ = cmd.Run() // the status is in the result
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func (s *session) getenv(name string) string {
	value := ""
	for _, entry := range s.environ {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}

func bothShells(t *testing.T, test func(t *testing.T, kind shell.Kind)) {
	t.Helper()
	for _, kind := range []shell.Kind{shell.Bash, shell.Zsh} {
		t.Run(string(kind), func(t *testing.T) { test(t, kind) })
	}
}
