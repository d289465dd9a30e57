package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

const completedInventory = `
hosts:
  - {name: "gpu-[01-03]", labels: {gpu: h100}, user: operator}
  - login.lab
  - "::1"
groups:
  train: ["gpu-[01-02]"]
`

// typist types in a real shell with completion, on a terminal.
type typist struct {
	t        *testing.T
	dir      string
	terminal *os.File
	screen   func() string
}

// completionHome is a home folder with an inventory and environments.
func completionHome(t *testing.T, envs string) (dir string, environ []string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range map[string]string{
		"config/genv/hosts.yaml": completedInventory, "lab/small.yaml": "hosts: [tiny-1]\n", "lab/notes.txt": "", "policy.yaml": "{}\n",
		"state/envs.json":    envs,
		"state/devices.json": `{"devices": [{"index": 0, "total_memory": "80g", "attachments": []}, {"index": 1, "total_memory": "80g", "attachments": []}]}`,
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	environ = []string{
		"PATH=" + filepath.Dir(genvProgram(t)) + ":/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + dir, "XDG_CONFIG_HOME=" + dir + "/config",
		"GENV_TMPDIR=" + dir + "/state", "TERM=vt100", "LC_ALL=C.UTF-8", "OUT=" + dir + "/line", "ZDOTDIR=" + dir, "INPUTRC=/dev/null",
	}
	return dir, environ
}

func completedEnvs(ids ...string) string {
	var envs []string
	for _, id := range ids {
		envs = append(envs, fmt.Sprintf(`{"eid": %q, "uid": %d, "username": "alice", "creation": "20/11/2026 21:10:32", "config": {"name": "train", "gpus": null, "gpu_memory": null}, "pids": [1], "kernel_ids": ["k-1"]}`, id, os.Geteuid()))
	}
	return `{"envs": [` + strings.Join(envs, ",") + "]}"
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
zle -C all-matches complete-word _generic; bindkey '^T' all-matches
zstyle ':completion:all-matches::::' completer _all_matches _complete
zstyle ':completion:all-matches::::' insert true
source <(genv completion zsh)
`

func startTypist(t *testing.T, shell, setup, envs string) *typist {
	t.Helper()
	if _, err := exec.LookPath(shell); err != nil {
		t.Skipf("%s is not installed", shell)
	}
	dir, environ := completionHome(t, envs)
	arguments := map[string][]string{"bash": {"--norc", "--noprofile", "-i"}, "zsh": {"-f", "-i"}}[shell]
	cmd := exec.Command(shell, arguments...)
	cmd.Dir, cmd.Env = dir, environ
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 60, Cols: 200})
	require.NoError(t, err)
	log, err := os.Create(filepath.Join(t.TempDir(), "screen"))
	require.NoError(t, err)
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
		data, err := os.ReadFile(log.Name())
		require.NoError(t, err)
		return string(data)
	}}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "setup"), []byte(setup+"\n: >"+filepath.Join(dir, "ready")+"\n"), 0o644))
	s.write(". ./setup\r")
	s.waitFor(filepath.Join(dir, "ready"))
	return s
}

func (s *typist) write(keys string) {
	s.t.Helper()
	_, err := s.terminal.WriteString(keys)
	require.NoError(s.t, err)
}

func (s *typist) waitFor(path string) string {
	s.t.Helper()
	require.Eventually(s.t, func() bool { _, err := os.Stat(path); return err == nil }, time.Minute, 5*time.Millisecond, "screen:\n%s", s.screen())
	data, err := os.ReadFile(path)
	require.NoError(s.t, err)
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

func TestProtoBash(t *testing.T) {
	s := startTypist(t, "bash", bashSetup, completedEnvs("1667", "2020"))
	for _, l := range []string{"genv rem" + tab, "genv remote enf" + tab, "genv remote gpus --so" + tab, "genv remote gpus --sort=ut" + tab, "genv remote gpus --sort ut" + tab,
		"genv remote -H " + all, "genv remote -H gpu-01," + all, "genv remote -H gpu-01,lo" + tab, "genv remote -H @tr" + tab, "genv remote -H ::" + tab, "genv remote -H '@tr" + tab, "genv remote -H \"lo" + tab,
		"genv remote -H lab/" + all, "genv remote -H lab/small.yaml,t" + tab, "genv policy check pol" + tab, "genv policy explain --policy=pol" + tab, "genv activate --id " + all, "genv activate --id=16" + tab,
		"genv run --gpus 1 unshar" + tab, "genv run genv sta" + tab, "genv lock cat pol" + tab, "X=1 genv remote query --query uid p" + tab, "genv remote --user=al" + tab,
		"genv envs query --query uid " + all, "genv devices attach --index 0," + all, "true; genv hi" + tab, "genv man la" + tab, "genv policy explain --label gpu" + tab, "genv completion " + all, "genv remote enforce --max-devices-for-user al" + tab, "genv history --user al" + tab} {
		fmt.Printf("%-60q %q\n", l, s.line(l))
	}
}

func TestProtoZsh(t *testing.T) {
	s := startTypist(t, "zsh", zshSetup, completedEnvs("1667", "2020"))
	for _, l := range []string{"genv rem" + tab, "genv remote enf" + tab, "genv remote gpus --so" + tab, "genv remote gpus --sort=ut" + tab, "genv remote gpus --sort ut" + tab,
		"genv remote -H " + all, "genv remote -H gpu-01," + all, "genv remote -H gpu-01,lo" + tab, "genv remote -H lo" + tab + ",", "genv remote -H @tr" + tab, "genv remote -H ::" + tab, "genv remote -H '@tr" + tab, "genv remote -H \"lo" + tab,
		"genv remote -H lab/" + all, "genv remote -H lab/small.yaml,t" + tab, "genv policy check pol" + tab, "genv policy explain --policy=pol" + tab, "genv activate --id " + all, "genv activate --id=16" + tab,
		"genv run --gpus 1 unshar" + tab, "genv run genv sta" + tab, "genv lock cat pol" + tab, "X=1 genv remote query --query uid p" + tab, "genv remote --user=al" + tab,
		"genv envs query --query uid " + all, "genv devices attach --index 0," + all, "true; genv hi" + tab, "genv man la" + tab, "genv policy explain --label gpu" + tab, "genv completion " + all, "genv remote enforce --max-devices-for-user al" + tab, "genv history --user al" + tab} {
		fmt.Printf("%-60q %q\n", l, s.line(l))
	}
	_ = os.WriteFile("/tmp/complete-screen", []byte(s.screen()), 0o644)
}
