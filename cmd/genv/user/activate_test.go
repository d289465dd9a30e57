package user_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a user sees of the variables that matter.
const variables = `env | grep -E '^(GENV_|CUDA_|PS1|PATH)' | grep -v GENV_SIM | sort`

func TestNamesWithSpacesSurvive(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, kind string) {
		u := newStation(t).me()
		shell := u.open(kind)
		require.Equal(t, said{}, shell.say(`genv activate --name "Norwegian Wood; \$(id) 'x'" --no-prompt`))
		require.Equal(t, said{text: "Norwegian Wood; $(id) 'x'\n"}, shell.say(`genv config name`))
		require.Equal(t, said{text: "Norwegian Wood; $(id) 'x'\n"}, shell.say(`echo "$GENV_ENVIRONMENT_NAME"`))
		require.Equal(t, said{}, shell.say(`genv config name "two  spaces"`))
		require.Equal(t, said{text: "two  spaces\n"}, shell.say(`echo "$GENV_ENVIRONMENT_NAME"`))
		require.Equal(t, said{text: "two  spaces  x\n", status: "7"}, shell.say(`genv lock sh -c 'echo "$GENV_ENVIRONMENT_NAME  x"; exit 7'`))
	})
}

func TestActivationsThatFail(t *testing.T) {
	t.Parallel()
	rows := []struct{ line, says string }{
		{`genv activate --gpus 9`, "Requested more devices (9) than total available (8)"},
		{`genv activate --gpus 1 --gpu-memory 90g`, "No GPU of this host has 90g of memory: the largest one has 8"},
		{`genv activate --gpus 0`, `gpus "0"`},
		{`genv activate --gpus -1`, `gpus "-1"`},
		{`genv activate --gpus x`, `gpus "x"`},
		{`genv activate --gpu-memory 4x`, "b, k, m, g, ki, mi or gi"},
		{`genv activate --gpu-memory 0`, "gpu-memory \"0\": write what you need"},
		{`genv activate --gpu-memory=`, "--gpu-memory is empty"},
		{`genv activate --name $'a\033]0;b'`, "choose another one"},
		{`genv activate --name $'a\nb'`, "choose another one"},
		{`genv activate --id $'a\tb'`, "control character"},
		{`genv activate extra`, `"extra"`},
		{`genv activate --nonsense`, "nonsense"},
	}
	eachShell(t, func(t *testing.T, kind string) {
		s := newStation(t)
		shell := s.me().open(kind)
		require.Empty(t, shell.say("genv devices >/dev/null").text) // from now on both files are there
		before, files := shell.say(variables), s.stateFiles()
		for _, row := range rows {
			said := shell.say(row.line)
			require.Equal(t, "1", said.status, row.line)
			require.Contains(t, said.text, row.says, row.line)
			require.Equal(t, 1, strings.Count(said.text, "\n"), "one line: %s", said.text)
			require.NotContains(t, said.text, "\033")
			require.Equal(t, before, shell.say(variables), row.line)
			require.Equal(t, files, s.stateFiles(), row.line)
		}
	})
}

func TestDeactivationGivesBackWhatTheShellHad(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, kind string) {
		shell := newStation(t).me().open(kind)
		shell.say(`export CUDA_VISIBLE_DEVICES=5 PS1='mine> '`)
		before := shell.say(variables + `; echo "$PS1"`)
		require.Equal(t, said{}, shell.say("genv activate --gpus 2"))
		require.Regexp(t, `^\(genv:\d+\) mine> \n0,1 PCI_BUS_ID\n$`, shell.say(`echo "$PS1"; echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER`).text)
		require.Equal(t, said{}, shell.say("genv deactivate"))
		require.Equal(t, before, shell.say(variables+`; echo "$PS1"`))
		require.Equal(t, said{"Not running in an active environment\n", "1"}, shell.say("genv deactivate"))
	})
}

// An environment lives as long as one of its terminals, and what one terminal
// attaches another takes over with --refresh.
func TestSeveralTerminals(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, kind string) {
		u := newStation(t).me()
		one, two := u.open(kind), u.open(kind)
		require.Equal(t, said{}, one.say("genv activate --gpus 1 --name shared"))
		require.Equal(t, said{}, two.say("genv activate --id "+one.pid()))
		require.Equal(t, said{text: "0 shared\n"}, two.say(`echo $CUDA_VISIBLE_DEVICES $GENV_ENVIRONMENT_NAME`))
		require.Equal(t, said{}, one.say("genv attach --index 3,5"))
		require.Equal(t, said{text: "0\n"}, two.say(`echo $CUDA_VISIBLE_DEVICES`))
		require.Equal(t, said{}, two.say("genv attach --refresh"))
		require.Equal(t, said{text: "0,3,5\n"}, two.say(`echo $CUDA_VISIBLE_DEVICES`))
		require.Equal(t, said{text: "Detached GPUs 0, 5\n"}, one.sayAll("genv detach --index 0,5"))
		three := u.open(kind)
		require.Equal(t, said{text: "3\n"}, three.say("genv activate --id "+one.pid()+"; echo $CUDA_VISIBLE_DEVICES"), "what was detached stays so")
		require.Equal(t, said{}, three.say("genv deactivate"))
		require.Equal(t, said{text: "0,1,3\n"}, three.say("genv activate --gpus 3 --id "+one.pid()+"; echo $CUDA_VISIBLE_DEVICES"))
		three.close()
		one.close()
		require.Equal(t, said{text: "0,1,3\n"}, two.say("genv devices find"))
		require.Equal(t, said{}, two.say("genv deactivate"))
		require.Equal(t, said{text: "ID,USER,NAME,CREATED,PID(S)\n"}, two.say("genv envs --format csv"))
		require.Equal(t, said{text: "\n"}, two.say("genv devices find --eid "+one.pid()))
	})
}

// A shell that was started from an active one is in the same environment, which
// goes on with it; one that lost its environment says so.
func TestAShellWhoseEnvironmentEnded(t *testing.T) {
	eachShell(t, func(t *testing.T, kind string) {
		s := newStation(t)
		u := s.me()
		one := u.open(kind)
		require.Equal(t, said{}, one.say("genv activate --gpus 1"))
		child := u.with("GENV_ENVIRONMENT_ID="+one.pid(), "GENV_SHELL=1", "CUDA_VISIBLE_DEVICES=0").open(kind)
		require.Equal(t, said{"Already running in an active environment\n", "1"}, child.say("genv activate"))
		require.Contains(t, child.say("genv status").text, "Environment is active ("+one.pid()+")\n")
		one.close()
		require.Equal(t, said{text: one.pid() + "," + child.pid() + "\n"}, child.say("genv envs query --query eid pids"), "its user's work goes on")
		require.NoError(t, os.WriteFile(filepath.Join(s.state, "envs.json"), []byte(`{"envs": []}`), 0o666))
		ended := "Environment " + one.pid() + " of this shell has ended: run `genv deactivate`, and then `genv activate`\n"
		require.Equal(t, said{text: "Environment is not active\n" + ended}, child.say("genv status"))
		for _, line := range []string{"genv activate", "genv attach", "genv detach", "genv config", "genv lock true"} {
			require.Equal(t, said{ended, "1"}, child.say(line), line)
		}
		require.Equal(t, said{}, child.say("genv deactivate; genv activate --gpus 1"))
		require.Equal(t, said{text: child.pid() + " 0\n"}, child.say("echo $GENV_ENVIRONMENT_ID $CUDA_VISIBLE_DEVICES"))
	})
}

func TestUninitialisedShell(t *testing.T) {
	s := newStation(t)
	shell := s.me().openBare("bash")
	for _, line := range []string{"genv activate", "GENV_SHELL=1 genv activate --gpus 1"} {
		said := shell.say(line)
		require.Contains(t, said.text, `eval "$(genv shell --init)"`)
		require.Equal(t, "1", said.status)
	}
	require.NoFileExists(t, filepath.Join(s.state, "envs.json"))
	active := s.me().open("bash")
	require.Equal(t, said{}, active.say("genv activate"))
	files := s.stateFiles()
	said := active.say("command genv deactivate") // what else works so is in testdata/script/in_scripts.txtar
	require.Contains(t, said.text, `eval "$(genv shell --init)"`)
	require.Equal(t, "1", said.status)
	require.Equal(t, files, s.stateFiles())
}

// A shell that lost its variables is still in the state files: it can leave.
func TestDeactivationWithoutTheVariable(t *testing.T) {
	shell := newStation(t).me().open("bash")
	require.Equal(t, said{}, shell.say("genv activate --gpus 1; unset GENV_ENVIRONMENT_ID"))
	again := shell.say("genv activate")
	require.Equal(t, "1", again.status)
	require.Contains(t, again.text, "run `genv deactivate`")
	require.Equal(t, said{}, shell.say("genv deactivate; genv activate --no-attach --gpus 2"))
	require.Equal(t, said{text: shell.pid() + " -1\n"}, shell.say("echo $GENV_ENVIRONMENT_ID $CUDA_VISIBLE_DEVICES"))
}

// The id of an environment is the PID of its first shell; PIDs are reused.
func TestAnIDIsNotTakenTwice(t *testing.T) {
	u := newStation(t).me()
	one, two := u.open("bash"), u.open("bash")
	require.Equal(t, said{}, two.say("genv activate --id "+one.pid()+" --gpus 2"))
	require.Equal(t, said{}, one.say("genv activate"))
	require.Equal(t, said{text: one.pid() + "-2 -1\n"}, one.say("echo $GENV_ENVIRONMENT_ID $CUDA_VISIBLE_DEVICES"))
}

func TestConfigurationIsSavedAndLoaded(t *testing.T) {
	u := parallelStation(t).me()
	shell := u.open("bash")
	project := filepath.Join(u.home, "project")
	shell.say("mkdir -p project/.genv; cd project")
	require.Equal(t, said{text: project + "/.genv\n"}, shell.say("genv home"))
	require.Equal(t, said{}, shell.say(`genv activate --name "my project" --gpus 2 --gpu-memory 4gi`))
	require.Equal(t, said{}, shell.say("genv config --save; genv config gpus 5; genv config name --clear"))
	require.Equal(t, said{text: "gpu-memory: 4gi\ngpus: 5\n"}, shell.say("genv config"))
	require.Equal(t, said{}, shell.say("genv config --load"))
	saved := "gpu-memory: 4gi\ngpus: 2\nname: my project\n"
	require.Equal(t, said{text: saved}, shell.say("genv config"))
	require.Equal(t, said{}, shell.say("genv deactivate; genv activate --gpu-memory 8g"))
	require.Equal(t, said{text: "gpu-memory: 8g\ngpus: 2\nname: my project\n"}, shell.say("genv config"), "what was saved, and over it the flags")
	require.Equal(t, said{text: "0,1\n"}, shell.say("echo $CUDA_VISIBLE_DEVICES"))
	require.Equal(t, said{}, shell.say("genv config --clear"))
	require.Equal(t, said{}, shell.say("genv config"))

	require.NoError(t, os.WriteFile(filepath.Join(project, ".genv", "gpus"), []byte("many\n"), 0o644))
	broken := shell.say("genv config --load")
	require.Equal(t, "1", broken.status)
	require.Contains(t, broken.text, project+"/.genv/gpus")
	require.NoError(t, os.RemoveAll(filepath.Join(project, ".genv")))
	require.NoError(t, os.Symlink("/etc", filepath.Join(project, ".genv")))
	require.Contains(t, shell.say("genv home").text, "Could not find any Genv configuration directory.\n", "a link is no such folder")
}

func TestPreactivatedShell(t *testing.T) {
	eachShell(t, func(t *testing.T, kind string) {
		u := newStation(t).me().with("GENV_PREACTIVATE=1", "GENV_PREACTIVATE_NAME=far away", "GENV_PREACTIVATE_GPUS=2")
		shell := u.open(kind)
		require.Equal(t, said{text: "far away 0,1\n"}, shell.say(`echo $GENV_ENVIRONMENT_NAME $CUDA_VISIBLE_DEVICES`))
		require.Equal(t, said{status: "1"}, shell.say(`env | grep GENV_PREACTIVATE`))
	})
}

func TestWhichShellIsInitialised(t *testing.T) {
	u := newStation(t).me()
	for line, want := range map[string]string{
		`bash -c 'genv shell --init; :' | head -1`:                        "function __genv_save {",
		`SHELL=/bin/zsh bash -c 'genv shell --init; :' | grep -c emulate`: "0",
		`genv shell --init --shell zsh | head -1`:                         "typeset -gA __genv_how __genv_old",
		`sh -c 'genv shell --init; :' 2>&1`:                               `--shell bash`,
	} {
		require.Contains(t, u.openBare("bash").say(line).text, want, line)
	}
}

// TestTextsAboutGPUs: who has none is told how to get one, and who has some, or another terminal's, as well.
func TestTextsAboutGPUs(t *testing.T) {
	u := newStation(t).me()
	shell, other := u.open("bash"), u.open("bash")
	require.Equal(t, said{text: "No GPU is attached yet: genv attach attaches one, and genv attach --count 2 two\n"}, shell.sayAll("genv activate"))
	require.Equal(t, said{}, u.open("bash").sayAll("genv activate --no-attach"))
	require.Equal(t, said{text: "Attached GPU 0 (H100 80GB HBM3)\n"}, shell.sayAll("genv attach"))
	require.Equal(t, said{text: "You have 1 already, GPU 0 (H100 80GB HBM3); --count 2 for one more\n"}, shell.sayAll("genv attach"))
	require.Equal(t, said{text: "Attached GPU 0\n"}, other.sayAll("genv activate --id "+shell.pid()), "nothing new, and no look at it")
	require.Equal(t, said{text: "Attached GPUs 0, 1 (H100 80GB HBM3)\n"}, other.sayAll("genv attach --count 2"))
	const behind = `CUDA_VISIBLE_DEVICES of this shell is "0", and that of its environment 0,1: run genv attach --refresh` + "\n"
	require.True(t, strings.HasPrefix(shell.sayAll("genv status").text, behind))
	require.Equal(t, said{}, shell.sayAll("genv attach --refresh"))
	require.NotContains(t, shell.sayAll("genv status").text, "--refresh")
	require.Equal(t, said{text: "Detached GPU 1\nNot attached: GPUs 2, 3\n"}, shell.sayAll("genv detach --index 1,2,3"))
	require.Equal(t, said{text: "Not attached: GPU 2\n"}, shell.sayAll("genv detach --index 2"))
	require.Equal(t, said{text: "Detached GPU 0\n"}, shell.sayAll("genv detach"))
	require.Equal(t, said{}, shell.sayAll("genv detach"))
	const works = `unknown shell "fish": genv run COMMAND works in every shell`
	require.Regexp(t, works, u.run("genv", "shell", "--init", "--shell", "fish").Err)
	require.Regexp(t, works, u.run("sh", "-c", `ln -s "$(command -v sh)" fish; ./fish -c 'genv activate; exit 1'`).Err)
}
