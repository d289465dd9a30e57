package user_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// function143 behaves towards genv as the shell function of 1.4.3 does.
const function143 = `genv() {
  case $1 in
    activate|deactivate) eval "$(command genv "$@" --shell $$)" ;;
    attach|detach) if command genv "$@"; then eval "$(command genv shell --reattach)"; fi ;;
    config) if command genv "$@"; then eval "$(command genv shell --reconfigure)"; fi ;;
    *) command genv "$@" ;;
  esac
}
`

// open143 is a shell with that function.
func (u *account) open143(kind string) *terminal {
	u.t.Helper()
	file := filepath.Join(u.home, "function")
	require.NoError(u.t, os.WriteFile(file, []byte(function143), 0o644))
	shell := u.openBare(kind)
	require.Equal(u.t, said{}, shell.say(". "+file+"; PS1='$ '; cd /"))
	return shell
}

// activate143 leaves the shell and the state files as an activation by 1.4.3 does, with
// device 0: see cli/shell.txt of its recordings.
func (s *station) activate143(shell *terminal) {
	s.t.Helper()
	pid, gpus := shell.pid(), 1
	created := proctest.Try(snapshot.ParseDate("20/11/2026 21:10:32")).OK(s.t)
	env := snapshot.Environment{EID: snapshot.EnvID(pid), UID: snapshot.UID(s.me().uid), Creation: created, PIDs: []snapshot.PID{snapshot.PID(shell.cmd.Process.Pid)}}
	env.Config = snapshot.EnvConfig{Name: "my-env", GPUMemory: snapshot.MustMemory("4g"), GPUs: &gpus}
	require.Zero(s.t, s.me().run("genv", "devices").Code) // makes devices.json
	devices := proctest.Try(snapshot.DecodeDevices([]byte(s.stateFiles()["devices.json"]))).OK(s.t)
	devices[0].Attachments = []snapshot.Attachment{{EID: env.EID, GPUMemory: env.Config.GPUMemory, Time: created}}
	s.write([]snapshot.Environment{env}, devices)
	require.Equal(s.t, said{}, shell.say(strings.Join([]string{
		"export GENV_SHELL=1 GENV_ENVIRONMENT_ID=" + pid + " GENV_ENVIRONMENT_NAME=my-env GENV_GPU_MEMORY=4g GENV_GPUS=1 CUDA_VISIBLE_DEVICES=0",
		`export GENV_BACKUP_ENV_PATH="$PATH" PATH="/opt/genv-1.4.3/shims:$PATH"`,
		`export GENV_BACKUP_ENV_PS1="$PS1" PS1="(genv) $PS1"`,
		"export GENV_BACKUP_ENVS=PATH:PS1",
		"export GENV_ENVS=GENV_SHELL:GENV_ENVIRONMENT_ID:PATH:GENV_ENVIRONMENT_NAME:GENV_GPU_MEMORY:GENV_GPUS:CUDA_VISIBLE_DEVICES:PS1",
	}, "; ")))
}

// left are the variables of an environment that are still set, and what must be as it was.
const left = `env | grep -E '^(GENV_|CUDA_)' | grep -v -E '^GENV_(TMPDIR|ROOT_DIR|SIM_GPUS)='; printf '%s|%s\n' "$PATH" "$PS1"`

// TestAShellThat143Activated goes on with this genv in the place of 1.4.3, and no job that runs in it is ended.
func TestAShellThat143Activated(t *testing.T) {
	s := newStation(t)
	shell := s.me().open143("bash")
	before := shell.say(left)
	s.activate143(shell)
	require.Equal(t, said{}, shell.say("sleep 1000000 & job=$!"))
	var job snapshot.PID
	proctest.Try(fmt.Sscan(shell.say("echo $job").text, &job)).OK(t)
	enforced := func() {
		t.Helper()
		outsider := startSleeper(t, s.me().uid)
		s.uses(map[snapshot.PID]int{job: 0, outsider: 5})
		r := s.admin().with("GENV_AUDIT_LOG=off").run("genv", "enforce", "--interval", "0", "--non-env-processes")
		require.Contains(t, r.Out, fmt.Sprintf("Terminating process %d from environment N/A", outsider), r.Err)
		require.NotContains(t, r.Out, pidText(job))
		require.Equal(t, said{}, shell.say("kill -0 $job"))
	}
	enforced()
	for _, step := range []struct{ line, want string }{
		{"genv config", "gpu-memory: 4g\ngpus: 1\nname: my-env\n"},
		{"genv attach --count 2; echo $CUDA_VISIBLE_DEVICES", "0,1\n"},
		{"genv attach --index 6; echo $CUDA_VISIBLE_DEVICES", "0,1,6\n"},
		{"genv detach --index 1; echo $CUDA_VISIBLE_DEVICES", "0,6\n"},
		{"genv config gpus 3; genv attach; echo $GENV_GPUS $CUDA_VISIBLE_DEVICES", "3 0,1,6\n"},
		{`genv config name "it's mine"; echo $GENV_ENVIRONMENT_NAME`, "it's mine\n"},
		{"genv config --clear gpu-memory; echo ${GENV_GPU_MEMORY-none}", "none\n"},
		{"genv config -q; genv attach --refresh; genv lock; genv home -q; genv lock echo locked", "locked\n"},
		{"genv activate", "Already running in an active environment\n"},
		{"genv envs find --pid $$", shell.pid() + "\n"},
		{"genv shell --ok | wc -l", "1\n"},
	} {
		require.Equal(t, said{text: step.want}, shell.say(step.line), step.line)
	}
	enforced()

	require.Contains(t, shell.say("genv deactivate").text, "remain until its processes end: "+pidText(job))
	require.Equal(t, before, shell.say(left))
	enforced()
	require.Equal(t, said{}, shell.say("kill $job; wait $job 2>/dev/null; genv activate --gpus 2 --name again"))
	require.Equal(t, said{text: "again 0,1\n"}, shell.say("echo $GENV_ENVIRONMENT_NAME $CUDA_VISIBLE_DEVICES"))
	require.Equal(t, said{}, shell.say("genv deactivate"))
	require.Equal(t, before, shell.say(left))
}

// A shell that has the function of 1.4.3 and no environment yet. In zsh 1.4.3 itself was
// seen to fail ("bad substitution") and to leave GENV_SHELL behind.
func TestAShellThat143Initialised(t *testing.T) {
	eachShell(t, func(t *testing.T, kind string) {
		s := newStation(t)
		shell := s.me().open143(kind)
		shell.say("export GENV_SHELL=1 CUDA_VISIBLE_DEVICES=5")
		before := shell.say(strings.Replace(left, "GENV_|", "GENV_ENV|", 1))
		require.Equal(t, said{}, shell.say("genv activate --gpus 1 --gpu-memory 4g --name \"a '\\$(id)' b\""))
		require.Equal(t, said{text: shell.pid() + " a '$(id)' b 1 4g 0\n"}, shell.say(`echo $GENV_ENVIRONMENT_ID "$GENV_ENVIRONMENT_NAME" $GENV_GPUS $GENV_GPU_MEMORY $CUDA_VISIBLE_DEVICES`))
		require.Equal(t, said{text: "(genv:a ???id?? b) $ \n"}, shell.say(`printf '%s\n' "$PS1"`))
		require.Equal(t, 1, strings.Count(shell.say("nvidia-smi -L").text, "\n"), "the shims are in PATH")
		require.Equal(t, said{text: "0,1,2\n"}, shell.say("genv attach --count 3; echo $CUDA_VISIBLE_DEVICES"))
		require.Equal(t, said{text: "-1\n"}, shell.say("genv detach; echo $CUDA_VISIBLE_DEVICES"))
		require.Equal(t, said{}, shell.say("genv deactivate"))
		require.Equal(t, before, shell.say(strings.Replace(left, "GENV_|", "GENV_ENV|", 1)), "the user's own CUDA_VISIBLE_DEVICES is back")
		require.Equal(t, said{text: "Not running in an active environment\n"}, shell.say("genv deactivate"))
		require.Equal(t, said{text: "ID,USER,NAME,CREATED,PID(S)\n"}, shell.say("genv envs --format csv"))
		require.Contains(t, shell.say("type genv").text, "function")
		require.NotContains(t, shell.say(`eval "$(command genv shell --deinit)"; type genv`).text, "function")
	})
}

// A shell in which this genv is initialised while an environment of 1.4.3 is active, as when ~/.bashrc is read again.
func TestAnActiveShellIsInitialisedAgain(t *testing.T) {
	s := newStation(t)
	shell := s.me().open143("bash")
	before := shell.say(left)
	s.activate143(shell)
	require.Equal(t, said{}, shell.say(`eval "$(command genv shell --init)"`))
	require.Equal(t, said{text: "0,1\n"}, shell.say("genv attach --count 2; echo $CUDA_VISIBLE_DEVICES"))
	require.Equal(t, said{text: "2\n"}, shell.say("genv config gpus 2; echo $GENV_GPUS"))
	require.Equal(t, said{}, shell.say("genv deactivate"))
	require.Equal(t, before, shell.say(left))
	require.Equal(t, said{text: "This shell is initialised. `genv status` says whether it is in an environment.\n"}, shell.say("genv shell"))
	require.Equal(t, said{}, shell.say("genv activate --gpus 1; genv deactivate"))
	require.Equal(t, before, shell.say(left))
}

// uses has nvidia-smi show processes on devices.
func (s *station) uses(on map[snapshot.PID]int) {
	s.t.Helper()
	s.sicken(func(d *gpus.Driver) {
		for pid, device := range on {
			d.Apps = append(d.Apps, gpus.App{PID: int(pid), Device: device, UsedMiB: new(int64(1000)), Name: fmt.Sprintf("job-%d", pid)})
		}
	})
}

func TestNvidiaSMIShowsTheEnvironment(t *testing.T) {
	eachShell(t, func(t *testing.T, kind string) {
		s := newStation(t)
		shell := s.me().open(kind)
		all := shell.say("nvidia-smi -L").text
		require.Equal(t, 8, strings.Count(all, "\n"), "not active: %s", all)
		require.Equal(t, said{}, shell.say("genv activate --gpu-memory 4g; genv attach --index 2,5; sleep 1000000 & mine=$!"))
		mine := shell.say("echo $mine").text
		var pid snapshot.PID
		proctest.Try(fmt.Sscan(mine, &pid)).OK(t)
		outsider := startSleeper(t, s.me().uid)
		s.uses(map[snapshot.PID]int{pid: 2, outsider: 5})

		lines := strings.SplitAfter(all, "\n")
		require.Equal(t, said{text: lines[2] + lines[5]}, shell.say("nvidia-smi -L"))
		require.Equal(t, said{text: all}, shell.say("GENV_BYPASS=1 nvidia-smi -L"))
		require.Equal(t, said{text: "2, 3814\n5, 3814\n"}, shell.say("nvidia-smi --query-gpu=index,memory.total --format=csv,noheader,nounits"))
		require.Equal(t, said{text: pidText(pid) + "\n"}, shell.say("nvidia-smi --query-compute-apps=pid --format=csv,noheader"))
		table := shell.say("nvidia-smi")
		require.Empty(t, table.status)
		require.Contains(t, table.text, pidText(pid))
		require.NotContains(t, table.text, pidText(outsider))
		require.Equal(t, 2, strings.Count(table.text, "/   3814MiB"), table.text)
		require.Contains(t, shell.say("nvidia-smi -q -x").text, "<product_name>")
		require.Equal(t, shell.say("GENV_BYPASS=1 nvidia-smi --no-such-flag"), shell.say("nvidia-smi --no-such-flag"), "what is not known is passed on, with its status")
		require.Equal(t, "2", shell.say("nvidia-smi --no-such-flag").status)
		require.Equal(t, shell.say("GENV_BYPASS=1 GENV_SIM_FAULT=mismatch nvidia-smi"), shell.say("GENV_SIM_FAULT=mismatch nvidia-smi"), "failures too")
		require.Equal(t, said{}, shell.say("kill $mine; wait $mine 2>/dev/null; genv deactivate"))
		require.Equal(t, said{text: all}, shell.say("nvidia-smi -L"))
	})
}

func TestShimWithoutTheProgram(t *testing.T) {
	u := newStation(t).me()
	shell := u.open("bash")
	require.Equal(t, said{}, shell.say("genv activate; PATH=${PATH%%:*}:/usr/bin:/bin"))
	said := shell.say("nvidia-smi")
	require.Equal(t, "127", said.status)
	require.Contains(t, said.text, "nvidia-smi: executable file not found")
}

func TestDockerRunGetsTheAttachedDevices(t *testing.T) {
	s := newStation(t)
	u := s.me()
	docker := filepath.Join(u.home, "bin", "docker")
	require.NoError(t, os.MkdirAll(filepath.Dir(docker), 0o755))
	require.NoError(t, proctest.WriteProgram(docker, []byte("#!/bin/sh\nprintf '[%s]' \"$@\"; echo; exit 4\n")))
	shell := u.open("bash")
	shell.say("PATH=" + filepath.Dir(docker) + ":$PATH")
	require.Equal(t, said{"[run][--gpus][all][cuda]\n", "4"}, shell.say("docker run --gpus all cuda"))
	require.Equal(t, said{}, shell.say("genv activate --name 'a b'; genv attach --index 2,5"))
	variables := "[-e][GENV_ENVIRONMENT_ID=" + shell.pid() + "][-e][GENV_ENVIRONMENT_NAME=a b]"
	for line, want := range map[string]string{
		"run --gpus all cuda --gpus all":      `[run][--gpus]["device=2,5"]` + variables + "[cuda][--gpus][all]\n",
		"run --rm --gpus 1 cuda sh -c 'a  b'": `[run][--rm][--gpus][device=2]` + variables + "[cuda][sh][-c][a  b]\n",
		"ps --all":                            "[ps][--all]\n",
		"exec x docker run --gpus all":        "[exec][x][docker][run][--gpus][all]\n",
	} {
		require.Equal(t, said{want, "4"}, shell.say("docker "+line), line)
	}
	require.Equal(t, said{"[run][--gpus][all][cuda]\n", "4"}, shell.say("GENV_BYPASS=1 docker run --gpus all cuda"))
	more := shell.say("docker run --gpus 3 cuda")
	require.Equal(t, "125", more.status)
	require.Contains(t, more.text, "genv attach --count 3")
}

// Commands of people and of controllers on GPU hosts read no configuration.
func TestWhoReadsNoConfiguration(t *testing.T) {
	s := newStation(t)
	dir := genvtest.Configure(t, command.ConfigFile, "not: [yaml")
	u := s.admin().with("GENV_CONFIG_DIR=" + dir)
	for _, line := range []string{"version", "devices", "envs", "gpus", "status", "usage snapshot", "usage snapshot --type devices", "history", "home", "monitor --help"} {
		out, err := u.command(append([]string{"genv"}, strings.Fields(line)...)...).CombinedOutput()
		require.NotContains(t, string(out), "config.yaml", line)
		require.True(t, err == nil || line == "status" || line == "home", "%s: %s", line, out)
	}
	for _, line := range []string{"remote gpus -H a", "enforce --interval 0", "policy explain"} {
		out, err := u.command(append([]string{"genv"}, strings.Fields(line)...)...).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "config.yaml:1:6", line)
	}
}
