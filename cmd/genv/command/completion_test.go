package command_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// typist types in a real shell with completion, on a terminal.
type typist struct {
	t        *testing.T
	dir      string
	terminal *os.File
	screen   func() string
}

// completionHome is a home folder with files.
func completionHome(t *testing.T) (dir string, environ []string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"lab/small.yaml", "lab/notes.txt", "policy.yaml"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o644))
	}
	environ = []string{
		"PATH=" + filepath.Dir(genvtest.Program(t)) + ":/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + dir, "XDG_CONFIG_HOME=" + dir + "/config",
		"GENV_TMPDIR=" + dir + "/state", "TERM=vt100", "LC_ALL=C.UTF-8", "OUT=" + dir + "/line", "ZDOTDIR=" + dir, "INPUTRC=/dev/null",
	}
	return dir, environ
}

const bashSetup = `
PS1='$ '; HISTFILE=; unset MAILCHECK
bind 'set bell-style none'; bind 'set completion-query-items 0'; bind 'set page-completions off'
bind '"\C-t": insert-completions'
dump() { printf %s "$READLINE_LINE" >"$OUT.new"; mv "$OUT.new" "$OUT"; }
bind -x '"\C-o": dump'
source <(genv completion bash)
`

const zshSetup = `
PS1='$ '; unset HISTFILE MAILCHECK; unsetopt beep zle_bracketed_paste 2>/dev/null; KEYTIMEOUT=1
autoload -Uz compinit && compinit -u -D
dump() { print -rn -- "$BUFFER" >"$OUT.new"; mv "$OUT.new" "$OUT" }
zle -N dump; bindkey -e; bindkey '^O' dump
source <(genv completion zsh)
`

func startTypist(t *testing.T, shell, setup string) *typist {
	t.Helper()
	proctest.NeedPrograms(t, shell)
	dir, environ := completionHome(t)
	arguments := map[string][]string{"bash": {"--norc", "--noprofile", "-i"}, "zsh": {"-f", "-i"}}[shell]
	cmd := exec.Command(shell, arguments...)
	cmd.Dir, cmd.Env = dir, environ
	terminal := proctest.Try(pty.StartWithSize(cmd, &pty.Winsize{Rows: 60, Cols: 200})).OK(t)
	log := proctest.Try(os.Create(filepath.Join(t.TempDir(), "screen"))).OK(t)
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(log, terminal) // ends with EIO when the shell does
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
		_ = terminal.Close()
		<-copied
		_ = log.Close()
	})
	s := &typist{t: t, dir: dir, terminal: terminal, screen: func() string {
		data := proctest.ReadFile(t, log.Name())
		return string(data)
	}}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "setup"), []byte(setup+"\n: >"+filepath.Join(dir, "ready")+"\n"), 0o644))
	s.write(". ./setup\r")
	s.waitFor(filepath.Join(dir, "ready"))
	return s
}

func (s *typist) write(keys string) {
	s.t.Helper()
	proctest.Try(s.terminal.WriteString(keys)).OK(s.t)
}

func (s *typist) waitFor(path string) string {
	s.t.Helper()
	require.Eventually(s.t, func() bool { _, err := os.Stat(path); return err == nil }, time.Minute, 5*time.Millisecond, "screen:\n%s", s.screen())
	data := proctest.ReadFile(s.t, path)
	require.NoError(s.t, os.Remove(path))
	return string(data)
}

// line is the line after some keys; then it is deleted.
func (s *typist) line(keys string) string {
	s.t.Helper()
	s.write(keys + "\x0f")
	line := s.waitFor(filepath.Join(s.dir, "line"))
	s.write("\x05\x15") // to the end, and delete
	return line
}

const (
	tab = "\t"
	all = "\x14" // inserts all that is offered
)

// typed is what a line becomes in a shell.
type typed struct{ keys, line string }

// inBoth hold for bash and for zsh.
var inBoth = []typed{
	{"genv rem" + tab, "genv remote "},
	{"genv remote enf" + tab, "genv remote enforce "},
	{"genv remote -H gpu-01 enf" + tab, "genv remote -H gpu-01 enforce "},
	{"genv remote enforce --dry" + tab, "genv remote enforce --dry-run "},
	{"genv remote enforce -H gpu-01 --dry-run --dry" + tab, "genv remote enforce -H gpu-01 --dry-run --dry"},
	{"genv enforce --allow" + tab, "genv enforce --allow"},
	{"genv devices attach --allow" + tab, "genv devices attach --allow-over-subscription "},
	{"genv remote gpus --sort ut" + tab, "genv remote gpus --sort utilization "},
	{"genv remote gpus --sort=ut" + tab, "genv remote gpus --sort=utilization "},
	{"genv remote gpus --so=ut" + tab, "genv remote gpus --so=utilization "},
	{"genv gpus --form c" + tab, "genv gpus --form csv "},
	{"genv remote exempt --rule id" + tab, "genv remote exempt --rule idle "},
	{"genv remote enforce --timestamps al" + tab, "genv remote enforce --timestamps always "},
	{"genv gpus --free=" + tab, "genv gpus --free="},
	{"genv usage snapshot --type e" + tab, "genv usage snapshot --type envs "},
	{"genv envs query --query uid p" + tab, "genv envs query --query uid pids "},
	{"genv envs query --query eid --ei" + tab, "genv envs query --query eid --eid "},
	{"genv remote -H lab/s" + tab, "genv remote -H lab/small.yaml "},
	{"genv remote -H la" + tab, "genv remote -H lab/"},
	{"genv remote -H $(touch PWNED) lo" + tab, "genv remote -H $(touch PWNED) lo"},
	{"genv remote -H 'gpu-01' enf" + tab, "genv remote -H 'gpu-01' enforce "},
	{"genv policy explain --policy=pol" + tab, "genv policy explain --policy=policy.yaml "},
	{"genv policy check pol" + tab, "genv policy check policy.yaml "},
	{"genv man la" + tab, "genv man lab/"},
	{"genv config gpu-" + tab, "genv config gpu-memory "},
	{"genv completion z" + tab, "genv completion zsh "},
	{"genv help remote enf" + tab, "genv help remote enforce "},
	{"genv run --nam" + tab, "genv run --name "},
	{"genv run --gpus 1 unshar" + tab, "genv run --gpus 1 unshare "},
	{"genv run -- unshar" + tab, "genv run -- unshare "},
	{"genv run cat pol" + tab, "genv run cat policy.yaml "},
	{"genv run cat --gp" + tab, "genv run cat --gp"},
	{"genv lock unshar" + tab, "genv lock unshare "},
	{"genv lock cat pol" + tab, "genv lock cat policy.yaml "},
	{"X=1 genv hist" + tab, "X=1 genv history "},
	{"true; genv hist" + tab, "true; genv history "},
	{"genv remote -- enf" + tab, "genv remote -- enf"},
	{"genv nothing hist" + tab, "genv nothing hist"},
	{"genv remote --no-such-flag gp" + tab, "genv remote --no-such-flag gpus "},
	{"genv __com" + tab, "genv __com"},
}

func TestCompletionInBash(t *testing.T) {
	t.Parallel()
	s := startTypist(t, "bash", bashSetup)
	s.check(inBoth)
	s.check([]typed{
		{"genv completion " + all, "genv completion bash zsh fish "},
		{"genv shell --shell " + all, "genv shell --shell bash zsh "},
		{"set -u; set -o noglob; genv remote enf" + tab, "set -u; set -o noglob; genv remote enforce "},
	})
	s.line("set -u; set -o noglob; set -o posix; COMP_WORDBREAKS=' \t\n'\r")
	s.check(inBoth[:slices.IndexFunc(inBoth, func(row typed) bool { return strings.Contains(row.keys, "--policy=") })])
}

// TestCompletionInBashWithTheirs: with the package bash-completion, which changes
// COMP_WORDBREAKS for some commands, and completes `sudo genv`.
func TestCompletionInBashWithTheirs(t *testing.T) {
	t.Parallel()
	const package_ = "/usr/share/bash-completion/bash_completion"
	if _, err := os.Stat(package_); err != nil {
		t.Skip("the package bash-completion is not installed")
	}
	s := startTypist(t, "bash", ". "+package_+"\n"+bashSetup)
	s.check(inBoth)
}

func TestCompletionInZsh(t *testing.T) {
	t.Parallel()
	s := startTypist(t, "zsh", zshSetup)
	s.check(inBoth)
	for keys, listed := range map[string][]string{
		"genv remote ":            {"enforce .*-- enforce the rules on all hosts", "gpus .*-- list the GPUs"},
		"genv remote enforce --m": {"--max-devices-per-user .*-- detach the GPUs", "--metrics "},
	} {
		before := len(s.screen())
		s.write(keys + tab + tab)
		for _, want := range listed {
			require.Eventually(t, func() bool { return regexp.MustCompile(want).MatchString(s.screen()[before:]) }, time.Minute, 10*time.Millisecond, "%s: %s", keys, want)
		}
		s.line("")
	}
}

// check types lines. A completion that takes longer than a second offers nothing, as on a busy
// machine: such a line is typed again.
func (s *typist) check(table []typed) {
	s.t.Helper()
	for _, row := range table {
		line := s.line(row.keys)
		for try := 1; line != row.line && try < 10; try++ {
			line = s.line(row.keys)
		}
		require.Equal(s.t, row.line, line, "%q", row.keys)
	}
	require.NoFileExists(s.t, filepath.Join(s.dir, "PWNED"))
}

// TestCompletionInFish asks fish how lines continue: it completes nothing without a terminal, but tells.
func TestCompletionInFish(t *testing.T) {
	t.Parallel()
	proctest.NeedPrograms(t, "fish")
	dir, environ := completionHome(t)
	for line, want := range map[string]string{
		"genv remote enf":                "enforce\tenforce the rules on all hosts",
		"genv remote gpus --sort=ut":     "--sort=utilization",
		"genv policy check pol":          "policy.yaml",
		"genv remote -H 'gpu-01' gpus -": "--free",
	} {
		cmd := exec.Command("fish", "--no-config", "-c", "genv completion fish | source; complete --do-complete $argv", line)
		cmd.Dir, cmd.Env = dir, environ
		out := proctest.Output(t, cmd)
		require.Contains(t, out, want, line)
	}
}

// TestCompletionIsSilent: nothing but candidates is printed, whatever the files contain,
// and it takes no time that a person notices.
func TestCompletionIsSilent(t *testing.T) {
	dir, environ := completionHome(t)
	for _, line := range []string{"remote -H ", "activate --id ", "detach --index ", "remote enforce --policy=", "'unfinished", "\\", ""} {
		cmd := exec.Command(genvtest.Program(t), append([]string{"__complete"}, strings.Split(line, " ")...)...)
		cmd.Env, cmd.Dir = environ, dir
		var errs strings.Builder
		cmd.Stderr = &errs
		proctest.Try(cmd.Output()).OK(t, line)
		require.Empty(t, errs.String(), line)
	}
	require.NoDirExists(t, filepath.Join(dir, "state"), "nothing is created")
}
