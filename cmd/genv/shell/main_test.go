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
	a := shell.Active{
		EID:     "1667",
		Config:  snapshot.EnvConfig{Name: os.Getenv("FAKE_NAME"), GPUMemory: snapshot.MustMemory("4g"), GPUs: new(1)},
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
	path := proctest.Try(exec.LookPath(string(kind))).OK(t)
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
	exe := proctest.Try(os.Executable()).OK(s.t)
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

var hostile = []string{
	"", "plain", "Norwegian Wood", "it's", "'", "''", "'x", "x'", `a''b`, `\`, `\'`, `"$(id)"`, "`id`", "$HOME", "!!", "!$",
	"a\nb\n\n", "\t", "*?[a-z]~{a,b}", "-n", "#x", "; touch /nonexistent", "a\\\nb", "é漢\u202e", "\xff\xfe", "\x01\x1b[31m", "%n%~", "=ls",
}

func TestQuotedTextComesOutTheSame(t *testing.T) {
	for _, kind := range []shell.Kind{shell.Bash, shell.Zsh} {
		options := map[shell.Kind][]string{shell.Bash: nil, shell.Zsh: {"-o", "rcquotes", "-o", "extendedglob", "-o", "globsubst"}}
		var script strings.Builder
		for _, text := range hostile {
			quoted := proctest.Try(shell.Quote(text)).OK(t)
			script.WriteString("printf '%s|end\\n' " + quoted + "\n")
		}
		r := newSession(t, kind).raw(script.String(), options[kind]...)
		require.Empty(t, r.stderr, kind)
		require.Equal(t, strings.Join(hostile, "|end\n")+"|end\n", r.stdout, kind)
	}
}

func TestNULIsRefused(t *testing.T) {
	_, err := shell.Quote("a\x00b")
	require.ErrorIs(t, err, shell.ErrUnquotable)
	for _, change := range []shell.Edit{
		{Set: []shell.Variable{{"X", "fine"}, {"Y", "a\x00"}}},
		{Set: []shell.Variable{{"X;id", "fine"}}},
		{Unset: []string{"$(id)"}},
		{Restore: []string{""}},
		{Enter: true, Prefix: "\x00"},
	} {
		code, err := change.Render()
		require.ErrorIs(t, err, shell.ErrUnquotable)
		require.Empty(t, code)
	}
	require.ErrorIs(t, proctest.Try(shell.Init(shell.InitOptions{Kind: shell.Bash, Exe: "/a\x00b"})).Err, shell.ErrUnquotable)
	require.ErrorIs(t, proctest.Try(shell.Init(shell.InitOptions{Kind: "fish", Exe: "/a"})).Err, shell.ErrUnknownShell)
}

func FuzzQuote(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quoted, err := shell.Quote(text)
		require.Equal(t, strings.Contains(text, "\x00"), err != nil)
		if err == nil {
			require.Equal(t, text, unquote(t, quoted))
		}
	})
}

// unquote reads a word as POSIX (2.2, "Quoting") has it, of single quotes and backslashes alone.
func unquote(t *testing.T, word string) string {
	var text strings.Builder
	for word != "" {
		switch {
		case word[0] == '\'':
			end := strings.IndexByte(word[1:], '\'')
			require.GreaterOrEqual(t, end, 0, "open quote")
			text.WriteString(word[1 : 1+end])
			word = word[end+2:]
		case word[0] == '\\' && len(word) > 1:
			text.WriteByte(word[1])
			word = word[2:]
		default:
			t.Fatalf("unquoted: %q", word)
		}
	}
	return text.String()
}

// No name can have a prompt run anything when it is shown.
func TestPromptIsHarmless(t *testing.T) {
	for text, want := range map[string]string{
		"my-env":          "(genv:my-env) ",
		"llm/llama3:8b":   "(genv:llm/llama3:8b) ",
		"été 2":           "(genv:été 2) ",
		"$(id)`id`\\u%n":  "(genv:??id??id??u?n) ",
		"a!b\n\x1b[0m'\"": "(genv:a?b???0m??) ",
		"\xff":            "(genv:?) ",
	} {
		require.Equal(t, want, shell.Prompt(text))
	}
}

func TestParseKind(t *testing.T) {
	for text, want := range map[string]shell.Kind{
		"bash": shell.Bash, "-bash": shell.Bash, "/usr/bin/bash": shell.Bash, "rbash\n": shell.Bash, "zsh": shell.Zsh, "-zsh": shell.Zsh, "zsh-5.9": shell.Zsh,
	} {
		require.Equal(t, want, proctest.Try(shell.ParseKind(text)).OK(t, text))
	}
	for _, text := range []string{"", "sh", "dash", "fish", "-", "bashful", "python3"} {
		require.ErrorIs(t, proctest.Try(shell.ParseKind(text)).Err, shell.ErrUnknownShell, text)
	}
}

func TestRenderedActivation(t *testing.T) {
	a := shell.Active{EID: "1667", Config: snapshot.EnvConfig{Name: "it's"}}
	code := proctest.Try(shell.Activate(a, false).Render()).OK(t)
	require.Equal(t, `__genv_set GENV_SHELL '1'
__genv_set GENV_ENVIRONMENT_ID '1667'
__genv_set GENV_ENVIRONMENT_NAME 'it'\''s'
__genv_set CUDA_DEVICE_ORDER 'PCI_BUS_ID'
__genv_set CUDA_VISIBLE_DEVICES '-1'
__genv_unset GENV_GPU_MEMORY
__genv_unset GENV_GPUS
__genv_path_add PATH
__genv_prompt PS1 '(genv:it?s) '
`, code)
}

func TestTheZeroChangeDoesNothing(t *testing.T) {
	require.Empty(t, proctest.Try(shell.Edit{}.Render()).OK(t))
}

func TestVisibleDevices(t *testing.T) {
	for want, active := range map[string]shell.Active{
		"-1":          {},
		"0,1,6":       {Devices: []snapshot.DeviceIndex{0, 1, 6}},
		"GPU-f,GPU-a": {Devices: []snapshot.DeviceIndex{5, 0}, UUIDs: []snapshot.GPUUUID{"GPU-f", "GPU-a"}},
	} {
		require.Equal(t, want, active.VisibleDevices())
	}
}

func TestNoCallerWithoutAnInitialisedShell(t *testing.T) {
	for _, environ := range []map[string]string{
		nil,
		{"GENV_SHELL": "1"},
		{"GENV_SHELL_KIND": "bash", "GENV_SHELL_PID": "77", "GENV_SHELL_FD": "1"},
		{"GENV_SHELL_KIND": "bash", "GENV_SHELL_PID": "1", "GENV_SHELL_FD": "3"},
		{"GENV_SHELL_KIND": "bash", "GENV_SHELL_PID": "77", "GENV_SHELL_FD": "60000"}, // closed
		{"GENV_SHELL_KIND": "fish", "GENV_SHELL_PID": "77", "GENV_SHELL_FD": "3"},
	} {
		require.ErrorIs(t, proctest.Try(shell.CallerFrom(func(name string) string { return environ[name] })).Err, shell.ErrNotInitialised, environ)
	}
}
