package shell_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
)

const shimsDir = "/opt/it's a folder/shims"

// What `env | grep -E "GENV_|CUDA_VISIBLE"` shows is what 1.4.3 was recorded to
// show, but for the two variables in which it kept its own accounts.
func TestActivationSetsWhatUsersKnow(t *testing.T) {
	bothShells(t, func(t *testing.T, kind shell.Kind) {
		r := newSession(t, kind, "FAKE_NAME=my-env").run(
			`genv activate --no-prompt >/dev/null && env | grep -E "^(GENV_|CUDA_|PATH=)" | sort`)
		require.Empty(t, r.stderr)
		require.Equal(t, `CUDA_DEVICE_ORDER=PCI_BUS_ID
CUDA_VISIBLE_DEVICES=0
GENV_ENVIRONMENT_ID=1667
GENV_ENVIRONMENT_NAME=my-env
GENV_GPUS=1
GENV_GPU_MEMORY=4g
GENV_SHELL=1
PATH=`+shimsDir+`:/usr/bin:/bin
`, r.stdout)
	})
}

// state prints all that must be the same again: what is set, unset, exported.
var state = map[shell.Kind]string{
	shell.Bash: "state() { declare -p PATH PS1 CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER GENV_GPUS 2>/dev/null || :; compgen -v | grep -E '^(GENV|__genv_(how|old))' || :; echo \"opts:$-\"; }\n",
	shell.Zsh:  "state() { typeset -p PATH PS1 CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER GENV_GPUS 2>/dev/null || :; set | grep -a -E '^GENV' || :; echo \"kept:${#__genv_how}${#__genv_old}\"; setopt; }\n",
}

func TestDeactivationGivesBackExactly(t *testing.T) {
	before := []struct{ name, script string }{
		{"nothing set", "unset CUDA_VISIBLE_DEVICES PS1"},
		{"exported", "export CUDA_VISIBLE_DEVICES=2 CUDA_DEVICE_ORDER=FASTEST_FIRST PS1='$ '"},
		{"set but not exported", "CUDA_VISIBLE_DEVICES=5; GENV_GPUS=mine; PS1='%~ '"},
		{"empty", "export CUDA_VISIBLE_DEVICES=; PS1="},
		{"hostile values", `CUDA_VISIBLE_DEVICES='a"b'\''$(touch x)` + "\n" + `!*'; PS1='\u$(id)` + "`id`" + `x '`},
		{"exported without a value", "unset GENV_GPUS; export GENV_GPUS"}, // empty in zsh
		{"PATH not exported", "typeset +x PATH"},
		{"PATH with spaces", "PATH=\"$PATH:/a b:/c*\""},
	}
	for _, b := range before {
		t.Run(b.name, func(t *testing.T) {
			bothShells(t, func(t *testing.T, kind shell.Kind) {
				r := newSession(t, kind).run(state[kind] + b.script + `
state > $HOME/before; genv activate >/dev/null; genv config >/dev/null; genv config >/dev/null
echo "in:$CUDA_VISIBLE_DEVICES"
genv deactivate >/dev/null; state > $HOME/after
/usr/bin/diff $HOME/before $HOME/after`)
				require.Empty(t, r.stderr)
				require.Equal(t, "in:0,3\n", r.stdout)
				require.Zero(t, r.code)
			})
		})
	}
}

func TestShellOptions(t *testing.T) {
	options := map[shell.Kind][]string{
		shell.Bash: {"-u", "-e", "-eu", "-a", "-f", "-C", "--posix", "-T", "-E"},
		shell.Zsh:  {"-u", "-e", "-eu", "-a", "-y", "-k", "-C", "--kshoptionprint", "--kshautoload", "-o ksharrays -o shwordsplit -o nounset", "-o rcquotes -o globsubst", "-o cshjunkiequotes", "-o warncreateglobal", "-o nomultios", "-o noglob", "-o posixbuiltins"},
	}
	bothShells(t, func(t *testing.T, kind shell.Kind) {
		for _, o := range options[kind] {
			t.Run(o, func(t *testing.T) {
				r := newSession(t, kind, "FAKE_NAME=it's\n\"$(id)\"").run(state[kind]+`
PS1='$ '; state > $HOME/before; unset CUDA_DEVICE_ORDER
genv activate >/dev/null; echo "$GENV_ENVIRONMENT_NAME|$PS1"
genv deactivate >/dev/null; state > $HOME/after
/usr/bin/diff $HOME/before $HOME/after`, strings.Fields(o)...)
				require.Empty(t, r.stderr)
				require.Equal(t, "it's\n\"$(id)\"|(genv:it?s????id??) $ \n", r.stdout)
				require.Zero(t, r.code)
			})
		}
	})
}

func TestSessions(t *testing.T) {
	for name, row := range map[string]struct {
		environ []string
		script  string
		options []string
		want    result
	}{
		"errexit ends at a failed activation": {[]string{"FAKE_FAILURE=1"}, "genv activate >/dev/null\necho still here", []string{"-e"}, result{code: 3}},
		"allexport shares nothing that functions keep": {[]string{"FAKE_NAME=x"}, `PS1='$ '; typeset +x PS1; CUDA_VISIBLE_DEVICES=7; set -a
genv activate >/dev/null; echo "$PS1"; env | grep -E '^(PS1|__genv)'; after=1; env | grep after`, nil, result{stdout: "(genv:x) $ \nafter=1\n"}},
		"the user's own output is not code": {nil, `out=$(genv activate '; touch /nonexistent/x'); echo "[$out]" | grep -c args`, nil, result{stdout: "1\n"}},
		"what the user changed stays": {nil, `PS1='a '; genv activate >/dev/null
PATH="/conda/bin:$PATH:/last"; PS1='(conda) b '
genv deactivate >/dev/null; echo "$PATH|$PS1"`, nil, result{stdout: "/conda/bin:/usr/bin:/bin:/last|(conda) b \n"}},
		"a shell that an active one started has no memory of what was before": {
			[]string{"PATH=" + shimsDir + ":/usr/bin:/bin", "GENV_SHELL=1", "GENV_ENVIRONMENT_ID=1667", "CUDA_VISIBLE_DEVICES=0"},
			`genv deactivate >/dev/null; env | grep -E "^(GENV_|CUDA_|PATH=)"`, nil,
			result{stdout: "PATH=/usr/bin:/bin\n"},
		},
		"a login shell below an active one, as in a pane of tmux, has the shims again": {
			[]string{"FAKE_NAME=x", "GENV_SHELL=1", "GENV_ENVIRONMENT_ID=1667", "GENV_PROMPT=(genv:x) "},
			`echo "$PATH"; genv deactivate >/dev/null; echo "$PATH"`, nil,
			result{stdout: shimsDir + ":/usr/bin:/bin\n/usr/bin:/bin\n"},
		},
		"a failed activation leaves nothing behind": {[]string{"FAKE_FAILURE=1"}, `$state; PS1='$ '
state > $HOME/before
genv activate >/dev/null
echo "status:$?"; state > $HOME/after; /usr/bin/diff $HOME/before $HOME/after`, nil, result{stdout: "status:3\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			bothShells(t, func(t *testing.T, kind shell.Kind) {
				script := strings.Replace(row.script, "$state; ", state[kind], 1)
				require.Equal(t, row.want, newSession(t, kind, row.environ...).run(script, row.options...))
			})
		})
	}
}

func TestInteractive(t *testing.T) {
	bothShells(t, func(t *testing.T, kind shell.Kind) {
		r := newSession(t, kind, "FAKE_NAME=x").run("genv activate >/dev/null; echo \"$GENV_ENVIRONMENT_NAME\"", "-i")
		require.Equal(t, "x\n", r.stdout)
		require.NotContains(t, r.stderr, "not found")
	})
}

func TestArgumentsSurvive(t *testing.T) {
	bothShells(t, func(t *testing.T, kind shell.Kind) {
		r := newSession(t, kind).run(`genv activate --name "Norwegian Wood" '' '$(id)' '*'; genv lock sh -c 'exit  7'; echo $?`)
		require.Empty(t, r.stderr)
		lines := strings.Split(r.stdout, "\n")
		require.Equal(t, `args:["activate" "--name" "Norwegian Wood" "" "$(id)" "*"]`, lines[0])
		require.Equal(t, `args:["lock" "sh" "-c" "exit  7"]`, lines[2])
		require.Equal(t, "7", lines[3])
	})
}

// The environment's process is the shell that was activated, a subshell too: with it the environment ends.
func TestThePIDIsTheShellsOwn(t *testing.T) {
	bothShells(t, func(t *testing.T, kind shell.Kind) {
		own := map[shell.Kind]string{shell.Bash: "$BASHPID", shell.Zsh: "${sysparams[pid]}"}[kind]
		r := newSession(t, kind).run("[ -z \"$ZSH_VERSION\" ] || zmodload zsh/system\n" +
			"genv activate; echo own:" + own + "\n(genv activate; echo own:" + own + ")\n:")
		var pids, owns []string
		for line := range strings.Lines(r.stdout) {
			if pid, ok := strings.CutPrefix(line, "pid:"); ok {
				pids = append(pids, strings.Fields(pid)[0])
			}
			if pid, ok := strings.CutPrefix(line, "own:"); ok {
				owns = append(owns, strings.TrimSpace(pid))
			}
		}
		require.Len(t, pids, 2)
		require.Equal(t, owns, pids)
		require.NotEqual(t, pids[0], pids[1])
	})
}

func TestWithoutStdoutActivationFails(t *testing.T) {
	bothShells(t, func(t *testing.T, kind shell.Kind) {
		require.Equal(t, "failed:\n", newSession(t, kind).run(`genv activate >&- || echo "failed:${GENV_ENVIRONMENT_ID-}"`).stdout)
	})
}

func TestPrompt(t *testing.T) {
	rows := []struct{ name, script, want string }{
		{"added", "genv activate", "(genv:x) $ "},
		{"replaced", "genv activate; FAKE_NAME=y genv config", "(genv:y) $ "},
		{"not wanted", "genv activate --no-prompt; genv config", "$ "},
		{"once, though initialised again", "genv activate; eval \"$(cat \"$init\")\"; genv activate", "(genv:x) $ "},
		{"given back, though initialised again", "genv activate; eval \"$(cat \"$init\")\"; genv deactivate", "$ "},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			bothShells(t, func(t *testing.T, kind shell.Kind) {
				require.Equal(t, result{stdout: row.want + "|\n"}, newSession(t, kind, "FAKE_NAME=x").run("PS1='$ '; { "+row.script+"; } >/dev/null; echo \"$PS1|\""))
			})
		})
	}
}

func TestPreactivation(t *testing.T) {
	want := shell.Preactivation{"name": "it's me", "gpus": "2", "gpu-memory": "4g", "no-prompt": "1"}
	require.Equal(t, []string{
		"GENV_PREACTIVATE=1", "GENV_PREACTIVATE_NAME=it's me", "GENV_PREACTIVATE_GPUS=2",
		"GENV_PREACTIVATE_GPU_MEMORY=4g", "GENV_PREACTIVATE_NO_PROMPT=1", "GENV_PREACTIVATE_PROMPT=0",
	}, want.Environ())
	bothShells(t, func(t *testing.T, kind shell.Kind) {
		s := newSession(t, kind, want.Environ()...)
		require.Equal(t, want, shell.PreactivationFrom(s.getenv))
		r := s.run("env | grep -E '^GENV_(PRE|ENVIRONMENT_ID)'")
		require.Empty(t, r.stderr)
		lines := strings.Split(r.stdout, "\n")
		require.Equal(t, `args:["activate" "--name=it's me" "--gpus=2" "--gpu-memory=4g" "--no-prompt"]`, lines[0])
		require.Equal(t, []string{"GENV_ENVIRONMENT_ID=1667", ""}, lines[2:])
	})
}

// A controller of 1.4.3 sends these; and a shell function of 1.4.3 evaluates the name that
// it is given, so it is given plain words alone.
func TestPreactivationOf143(t *testing.T) {
	bothShells(t, func(t *testing.T, kind shell.Kind) {
		for prompt, want := range map[string]string{
			"0": `args:["activate" "--name=it's $(id)" "--gpus=2" "--no-prompt"]`,
			"1": `args:["activate" "--name=it's $(id)" "--gpus=2"]`,
		} {
			s := newSession(t, kind, "GENV_PREACTIVATE=1", "GENV_PREACTIVATE_ENVIRONMENT_NAME=it's $(id)", "GENV_PREACTIVATE_GPUS=2", "GENV_PREACTIVATE_PROMPT="+prompt)
			r := s.run("env | grep -E '^GENV_(PRE|ENVIRONMENT_ID)'")
			require.Empty(t, r.stderr)
			lines := strings.Split(r.stdout, "\n")
			require.Equal(t, want, lines[0])
			require.Equal(t, []string{"GENV_ENVIRONMENT_ID=1667", ""}, lines[2:])
		}
	})
	const variable = "GENV_PREACTIVATE_ENVIRONMENT_NAME="
	for _, name := range []string{"my-env", "llm/llama3:8b", "a_b.c@d%e+f,g", "7"} {
		require.Contains(t, shell.Preactivation{"name": name}.Environ(), variable+name)
	}
	for _, name := range []string{"", "-n", "--shell", "my project", "a;id", "$(id)", "`id`", "a'b", `a"b`, "a\\b", "*", "~root", "a=b", "{a,b}", "é", "a\nb"} {
		for _, v := range (shell.Preactivation{"name": name}).Environ() {
			require.NotContains(t, v, variable, name)
		}
	}
}

func TestNoPreactivation(t *testing.T) {
	for _, environ := range [][]string{
		nil, {"GENV_PREACTIVATE=0"}, {"GENV_PREACTIVATE_NAME=x"}, {"GENV_PREACTIVATE=1", "GENV_ENVIRONMENT_ID=5"},
	} {
		require.Nil(t, shell.PreactivationFrom(func(name string) string {
			i := slices.IndexFunc(environ, func(e string) bool { return strings.HasPrefix(e, name+"=") })
			if i < 0 {
				return ""
			}
			return strings.TrimPrefix(environ[i], name+"=")
		}), environ)
	}
}

// A shell that an active one starts, as tmux and screen do, shows the environment in its prompt, once,
// until it leaves the environment.
func TestPromptOfShellsWithin(t *testing.T) {
	within := map[shell.Kind]string{shell.Bash: "bash --norc", shell.Zsh: "zsh -f"}
	for flag, prompt := range map[string]string{"": "(genv:x) % ", "--no-prompt": "% "} {
		bothShells(t, func(t *testing.T, kind shell.Kind) {
			r := newSession(t, kind, "FAKE_NAME=x").run(`PS1='$ '; export init; genv activate ` + flag + ` >/dev/null
` + within[kind] + ` -c 'PS1="% "; eval "$(cat $init)"; eval "$(cat $init)"; echo "$PS1"; genv deactivate >/dev/null; echo "$PS1${GENV_PROMPT-}"'
echo "$PS1"; genv deactivate >/dev/null; env | grep GENV_PROMPT`)
			require.Equal(t, result{stdout: prompt + "\n% \n" + strings.Replace(prompt, "%", "$", 1) + "\n", code: 1}, r)
		})
	}
}

// What other tools do to PATH and the prompt of an active shell is put right at the next prompt, and in shells that
// inherit the environment; after it is left, the environment is in no prompt.
func TestWhatOthersUndo(t *testing.T) {
	const venv = `old=$PS1 oldpath=$PATH; PS1="(venv) $PS1" PATH=/venv:$PATH`
	const venvEnds = `PS1=$old PATH=$oldpath`
	const without, with = "/usr/bin:/bin", shimsDir + ":/usr/bin:/bin"
	for name, row := range map[string]struct{ script, want string }{
		"a PATH that is set again":     {"genv activate; PATH=/usr/bin:/bin", with + "|(genv:x) $ "},
		"a prompt that is set again":   {"genv activate; PS1='% '", with + "|(genv:x) % "},
		"venv within":                  {"genv activate; " + venv, "/venv:" + with + "|(venv) (genv:x) $ "},
		"venv within, which ends":      {"genv activate; " + venv + "\n" + venvEnds, with + "|(genv:x) $ "},
		"venv around, which ends":      {venv + "; genv activate\n" + venvEnds, with + "|(genv:x) $ "},
		"left within venv":             {"genv activate; " + venv + "\ngenv deactivate", "/venv:" + without + "|(venv) $ "},
		"left before venv ends":        {"genv activate; " + venv + "\ngenv deactivate\nPS1=$old", without + "|$ "},
		"another name within venv":     {"genv activate; " + venv + "\nFAKE_NAME=y genv config", "/venv:" + with + "|(venv) (genv:y) $ "},
		"no environment":               {"PATH=/usr/bin:/bin", without + "|$ "},
		"no environment any more":      {"genv activate\ngenv deactivate\nPS1='% '", without + "|% "},
		"no prompt is wanted":          {"genv activate --no-prompt; PATH=/usr/bin:/bin", with + "|$ "},
		"initialised again":            {"genv activate; eval \"$(cat \"$init\")\"; PATH=/usr/bin:/bin", with + "|(genv:x) $ "},
		"a folder that is there stays": {"genv activate; PATH=/a:$PATH", "/a:" + with + "|(genv:x) $ "},
	} {
		t.Run(name, func(t *testing.T) {
			bothShells(t, func(t *testing.T, kind shell.Kind) {
				s := newSession(t, kind, "FAKE_NAME=x")
				script := strings.ReplaceAll("{ "+row.script+"; } >/dev/null", "\n", "; } >/dev/null\n{ ")
				r := s.typed("PS1='$ ' init='" + s.initFile() + "'\n" + script + "\nwant=\"$PATH|$PS1\"\n/usr/bin/printf '%s\\n' \"$want\"\nexit 0\n")
				require.Contains(t, r.stdout, row.want+"\n", r.stderr)
				require.NotContains(t, r.stderr, "not found")
				require.Zero(t, r.code)
			})
		})
	}
}
