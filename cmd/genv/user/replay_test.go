package user_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// recorded is a command of a recording, and what 1.4.3 said to it.
type recorded struct {
	command string
	lines   []string // on stderr those that begin with "stderr: "
	exit    string   // as "[exit 0]"; empty where none was recorded
}

func recording(t *testing.T, name string) []recorded {
	data := proctest.ReadFile(t, filepath.Join("../../../snapshot/testdata/genv-1.4.3/cli", name))
	var steps []recorded
	for line := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n") {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			steps = append(steps, recorded{command: command})
			continue
		}
		step := &steps[len(steps)-1]
		if strings.HasPrefix(line, "[exit ") {
			step.exit = line
		} else {
			step.lines = append(step.lines, line)
		}
	}
	for i := range steps { // an empty line stands between steps
		if s := &steps[i]; s.lines != nil && s.lines[len(s.lines)-1] == "" {
			s.lines = s.lines[:len(s.lines)-1]
		}
	}
	return steps
}

func (r recorded) String() string {
	return strings.Join(append(append([]string{"$ " + r.command}, r.lines...), r.exit), "\n")
}

// difference is where this program differs on purpose.
type difference struct {
	command string
	nth     int // of the same command, from 0
	why     string
	lines   []string
	exit    string
}

// differ puts the differences in the place of what was recorded; each must be one.
func differ(t *testing.T, steps []recorded, differences []difference) []recorded {
	steps = slices.Clone(steps)
	for _, d := range differences {
		n, found := 0, false
		for i := range steps {
			if steps[i].command != d.command {
				continue
			}
			if n == d.nth {
				ours := recorded{d.command, d.lines, d.exit}
				require.NotEqual(t, steps[i].String(), ours.String(), "no difference: %s", d.why)
				steps[i], found = ours, true
			}
			n++
		}
		require.True(t, found, "not recorded: %s", d.command)
	}
	return steps
}

func requireSteps(t *testing.T, want, got []recorded) {
	t.Helper()
	text := func(steps []recorded) string {
		var b strings.Builder
		for _, s := range steps {
			fmt.Fprintln(&b, s)
		}
		return b.String()
	}
	require.Equal(t, text(want), text(got))
}

// words are those of a recorded command: the quotes around what follows sh -c were not recorded.
func words(command string) []string {
	if before, script, ok := strings.Cut(command, " -c "); ok {
		return append(strings.Fields(before), "-c", script)
	}
	return strings.Fields(command)
}

func linesOf(text, prefix string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, prefix+strings.TrimSuffix(line, "\n"))
	}
	return lines
}

// TestReplayLocal: the recording was taken on a host with two environments, and
// goes on, from `envs find` on, with one of them that was begun again.
func TestReplayLocal(t *testing.T) {
	proctest.NeedRoot(t) // what belongs to alice and bob is changed
	steps := differ(t, recording(t, "local.txt"), []difference{{
		command: "genv devices attach --eid 9 --index 0", why: "a refusal says who has the device, and since when",
		lines: []string{
			"stderr: Device 0 is not available",
			`stderr:     GPU 0: environment 1667 of alice(1001) has it since 2026-11-20T21:10:33`,
			`stderr:     GPU 0: environment 2020 of bob(1002) has 4g since 2026-11-20T21:10:34`,
		}, exit: "[exit 1]",
	}, {
		command: "genv lock sh -c exit 7",
		why:     "outside of an environment nothing is locked, and it says so",
		lines:   []string{"stderr: genv: no GPU is locked: this shell is in no environment; run `genv activate` first"}, exit: "[exit 7]",
	}})
	begin := slices.IndexFunc(steps, func(s recorded) bool { return strings.HasPrefix(s.command, "genv envs find") })
	first := []snapshot.Environment{
		{EID: "1667", UID: 1001, Username: "alice", Creation: genvtest.Date(t, "20/11/2026 21:10:32"), Config: snapshot.EnvConfig{Name: "my-env", GPUs: new(2)}, PIDs: []snapshot.PID{25936, 25937}},
		{EID: "2020", UID: 1002, Username: "bob", Creation: genvtest.Date(t, "20/11/2026 21:10:32"), Config: snapshot.EnvConfig{GPUMemory: snapshot.MustMemory("4g")}, PIDs: []snapshot.PID{25938}},
	}
	replayLocal(t, steps[:begin], first, proctest.ReadText(t, "../../../snapshot/testdata/genv-1.4.3/state/devices.json"))

	second := []snapshot.Environment{{
		EID: "1667", UID: 1001, Username: "alice", Creation: genvtest.Date(t, "20/11/2026 21:32:01"), PIDs: []snapshot.PID{23215, 23216},
	}}
	replayLocal(t, steps[begin:], second, "")
}

// replayLocal runs the steps as processes on a state that is prepared with live
// processes in the place of those that were recorded.
func replayLocal(t *testing.T, steps []recorded, envs []snapshot.Environment, devices string) {
	s := newStation(t)
	var toLive, toRecorded []string
	for i := range envs {
		for j, pid := range envs[i].PIDs {
			live := startSleeper(t, int(envs[i].UID))
			toLive = append(toLive, fmt.Sprint(pid), fmt.Sprint(live))
			toRecorded = append(toRecorded, fmt.Sprint(live), fmt.Sprint(pid))
			envs[i].PIDs[j] = live
		}
	}
	s.write(envs, nil)
	if devices != "" {
		require.NoError(t, os.WriteFile(filepath.Join(s.state, "devices.json"), []byte(devices), 0o666))
	}
	var got []recorded
	for _, step := range steps {
		r := s.admin().run(words(strings.NewReplacer(toLive...).Replace(step.command))...)
		normal := strings.NewReplacer(toRecorded...)
		lines := append(linesOf(normal.Replace(r.Out), ""), linesOf(normal.Replace(r.Err), "stderr: ")...)
		got = append(got, recorded{step.command, lines, fmt.Sprintf("[exit %d]", r.Code)})
	}
	requireSteps(t, steps, got)
}

var inShellDifferences = []difference{
	{
		command: `env | grep -E "GENV_|CUDA_VISIBLE"`,
		why:     "the shell itself keeps what its variables were, so that no variable has to",
		lines: []string{
			"CUDA_VISIBLE_DEVICES=0", "GENV_ENVIRONMENT_ID=PID", "GENV_ENVIRONMENT_NAME=my-env",
			"GENV_GPUS=1", "GENV_GPU_MEMORY=4g", "GENV_SHELL=1", "GENV_TMPDIR=DIR",
		},
	},
	{command: "genv config gpu-memory --clear", why: "it clears", exit: "[exit 0]"},
	{command: "genv config", nth: 1, why: "it was cleared", lines: []string{"gpus: 3", "name: my-env"}, exit: "[exit 0]"},
	{command: "genv lock sh -c exit 7", why: "the exit status is the command's", exit: "[exit 7]"},
	{
		command: "genv activate", why: "an activation that fails has an exit status that says so",
		lines: []string{"Already running in an active environment"}, exit: "[exit 1]",
	},
	{
		command: "genv status", nth: 1, why: "the capacity was cleared", exit: "[exit 0]",
		lines: []string{"Environment is active (PID)", "Detached from GPUs", "", "Configuration", "    Name: my-env", "    Device count: 3", "    GPU memory capacity: N/A", ""},
	},
	{
		command: `env | grep -E "GENV_|CUDA_VISIBLE"`, nth: 1, why: "the shell gets back what it had: no CUDA_VISIBLE_DEVICES",
		lines: []string{"GENV_TMPDIR=DIR"},
	},
}

// TestReplayShell runs the recorded session in real shells, on a state folder that doesn't exist yet.
func TestReplayShell(t *testing.T) {
	steps := differ(t, recording(t, "shell.txt"), inShellDifferences)
	eachShell(t, func(t *testing.T, kind string) {
		s := newStation(t)
		shell := s.me().open(kind)
		var got []recorded
		for _, step := range steps {
			typed := step.command
			if words := words(typed); len(words) > 3 && words[len(words)-2] == "-c" {
				typed = strings.Join(words[:len(words)-1], " ") + " '" + words[len(words)-1] + "'"
			}
			if strings.HasPrefix(typed, "env ") {
				typed += " | grep -v -e GENV_CONFIG_DIR -e GENV_SIM_GPUS -e GENV_ROOT_DIR -e GENV_DEV_DIR | sort"
			}
			said := shell.say(typed)
			text := strings.NewReplacer(shell.pid(), "PID", s.state, "DIR").Replace(said.text)
			ours := recorded{command: step.command, lines: linesOf(text, "")}
			if step.exit != "" {
				ours.exit = "[exit 0]"
				if said.status != "" {
					ours.exit = "[exit " + said.status + "]"
				}
			}
			got = append(got, ours)
		}
		requireSteps(t, steps, got)
	})
}

// The recordings are unchanged: they were not made to fit.
func TestRecordingsAreRead(t *testing.T) {
	for name, count := range map[string]int{"local.txt": 30, "shell.txt": 20} {
		steps := recording(t, name)
		require.Len(t, steps, count, name)
		for _, s := range steps {
			require.Regexp(t, regexp.MustCompile(`^(genv|env|echo) `), s.command)
		}
	}
}

// TestReplayEnforce: on the host on which 1.4.3 was recorded, `genv enforce` says
// and does the same. The order is our own: detachments come first.
func TestReplayEnforce(t *testing.T) {
	proctest.NeedRoot(t)
	step := recording(t, "enforce.txt")[0]
	s := newStation(t)
	alices, bobs, outside := proctest.Sleeper(t, 1001, "GENV_ENVIRONMENT_ID=1667"), proctest.Sleeper(t, 1002, "GENV_ENVIRONMENT_ID=2020"), proctest.Sleeper(t, 1002, "PATH=/usr/bin:/bin")
	var toRecorded []string
	for recorded, pid := range map[string]snapshot.PID{"27940": alices, "27941": bobs, "27942": outside} {
		toRecorded = append(toRecorded, fmt.Sprintf("rocess %d ", pid), "rocess "+recorded+" ")
	}
	s.apps(appOf(alices, 0, 1000), appOf(alices, 1, 1000), appOf(bobs, 3, 9000), appOf(outside, 4, 10))
	s.recordedBooks(t)

	r := s.admin().with("GENV_AUDIT_LOG=off").run(words(step.command)...).OK(t)
	got := linesOf(strings.NewReplacer(toRecorded...).Replace(r.Out), "")
	for i, line := range got { // behind the recorded line we name the user and the program
		got[i] = regexp.MustCompile(` \([^()]*\)$`).ReplaceAllString(line, "")
	}
	slices.Sort(got)
	require.Equal(t, slices.Sorted(slices.Values(step.lines)), got, r.Err)
	require.Equal(t, genvtest.Result{Out: "0,\n1,1667\n2,\n3,2020\n"}, s.admin().run("genv", "devices", "query", "--index", "0,1,2,3", "--query", "index", "eids"))
}

// recordedBooks are those of the recording: alice has the devices 0 and 1, bob 0 and 3, with a capacity.
func (s *station) recordedBooks(t *testing.T) {
	created := genvtest.Date(t, "20/11/2026 21:10:32")
	var devices []snapshot.Device
	for i := range 8 {
		devices = append(devices, snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(81559)})
	}
	attach := func(device int, eid snapshot.EnvID, capacity snapshot.Memory) {
		devices[device].Attachments = append(devices[device].Attachments, snapshot.Attachment{EID: eid, GPUMemory: capacity, Time: created})
	}
	attach(0, "1667", snapshot.Memory{})
	attach(1, "1667", snapshot.Memory{})
	attach(0, "2020", snapshot.MustMemory("4g"))
	attach(3, "2020", snapshot.MustMemory("4g"))
	s.write([]snapshot.Environment{
		{EID: "1667", UID: 1001, Username: "alice", Creation: created, PIDs: []snapshot.PID{startSleeper(t, 1001)}},
		{EID: "2020", UID: 1002, Username: "bob", Creation: created, PIDs: []snapshot.PID{startSleeper(t, 1002)}},
	}, devices)
}

// write writes the state files, without devices if there are none.
func (s *station) write(environments []snapshot.Environment, devices []snapshot.Device) {
	s.t.Helper()
	envs := proctest.Try(snapshot.EncodeEnvironments(environments)).OK(s.t)
	require.NoError(s.t, os.MkdirAll(s.state, 0o777))
	require.NoError(s.t, os.WriteFile(filepath.Join(s.state, "envs.json"), envs, 0o666))
	if devices != nil {
		document := proctest.Try(snapshot.EncodeDevices(devices)).OK(s.t)
		require.NoError(s.t, os.WriteFile(filepath.Join(s.state, "devices.json"), document, 0o666))
	}
}

func appOf(pid snapshot.PID, device int, usedMiB int64) gpus.App {
	return gpus.App{PID: int(pid), Device: device, UsedMiB: &usedMiB, Name: "job"}
}

// apps are all that nvidia-smi shows from now on.
func (s *station) apps(apps ...gpus.App) {
	s.t.Helper()
	s.sicken(func(d *gpus.Driver) { d.Apps = apps })
}

// startSleeper is a process of a user for the time of the test.
func startSleeper(t *testing.T, uid int) snapshot.PID {
	t.Helper()
	return proctest.Sleeper(t, uid, genvtest.Outside...)
}
