package readonly

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

const container = "4c01db0b339c4c01db0b339c4c01db0b339c4c01db0b339c4c01db0b339caaaa"

const described = "Clock -0330\n" + "Name:\tpython3\nPid:\t7\nUid:\t1001\t1001\t1001\t1001\nName:\tother\nPid:\t9\nUid:\t0\t0\t0\t0\n" +
	"Cgroup 7 1:name=systemd:/\nCgroup 7 0::/docker/" + container + "\nCgroup 9 0::/docker/" + container + "\n" +
	"User alice:x:1001:1001::/home/alice:/bin/sh\nUser eve\x1b:x:0:0::/:/bin/sh\n" +
	"Command 9 other\nCommand 7 python3 train.py\n"

func describe7(data string) (*snapshot.Process, Descriptions) {
	p := &snapshot.Process{PID: 7}
	d := Descriptions{byPID: map[string]*snapshot.Process{"7": p}, Names: make(map[snapshot.UID]snapshot.Username)}
	d.parse([]byte(data))
	return p, d
}

// TestScriptsForAnyShell: csh(1) as login shell takes no newline in quotes, and no exclamation mark.
func TestScriptsForAnyShell(t *testing.T) {
	args := slices.Concat(marked("sh", "-c", published), markedSMI("-L"), marked("sh", "-c", describeProcesses, "sh"))
	require.False(t, strings.ContainsAny(strings.Join(args, " "), "\n!"))
	pid := strconv.Itoa(os.Getpid())
	line := remote.Command{Args: marked("sh", "-c", describeProcesses, "sh", pid)}.ShellLine()
	for _, shell := range []string{"sh", "bash", "tcsh", "fish", "zsh"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		out := proctest.Try(exec.CommandContext(t.Context(), path, "-c", line).Output()).OK(t, shell)
		require.Contains(t, string(dataIn(out)), "Pid:\t"+pid, shell)
		require.Contains(t, string(dataIn(out)), "\nCommand "+pid+" ", shell)
	}
}

func TestParseDescriptions(t *testing.T) {
	uid := snapshot.UID(1001)
	p, d := describe7(described)
	require.Equal(t, -(3*3600 + 1800), *d.UTCOffset)
	require.Equal(t, &snapshot.Process{PID: 7, Name: "python3", Command: "python3 train.py", Container: container, UID: &uid}, p,
		"and nothing of a process that was not asked for")
	require.Equal(t, map[snapshot.UID]snapshot.Username{1001: "alice"}, d.Names)
	for options, hides := range map[string]bool{"rw": false, "rw,hidepid=invisible": true} {
		p, _ = describe7("Mount 23 28 0:21 / /proc rw shared:13 - proc proc " + options + "\nMount 5 23 0:9 / /proc/sys/fs/binfmt_misc rw - autofs x rw\n" + described)
		require.Equal(t, hides, p.CommandOrName() == "" && p.PrivateCommand == "python3 train.py", options)
	}
}

// TestACommandForgesNothing: a command line is what its user wrote, on one line or more.
func TestACommandForgesNothing(t *testing.T) {
	p, d := describe7(described + "Uid:\t0\nPid:\t7\nUid:\t0\nUser root:x:1001:0::/:/bin/sh\nCommand 7 ls\n")
	require.Equal(t, "python3 train.py", p.Command)
	require.EqualValues(t, 1001, *p.UID)
	require.Equal(t, snapshot.Username("alice"), d.Names[1001])

	p, _ = describe7("Name:\tsh\nPid:\t7\nCommand 7 [sh]\n")
	require.Empty(t, p.Command, "it has none")
	p, _ = describe7("Command 7 \x1b[2J\xff" + strings.Repeat("x", 1000) + "\n")
	require.True(t, strings.HasPrefix(p.Command, "?[2J?x"), p.Command)
	require.Len(t, p.Command, snapshot.MaxCommand)
}

// FuzzParseDescriptions: a host may say what it likes; only what was asked for is
// described, by texts that may stand in a snapshot.
func FuzzParseDescriptions(f *testing.F) {
	f.Add(described)
	f.Add("Uid:\t1\nPid:\t7\nName:\t\x1b[2J\nPid:\t7\nUid:\t99999999999\nUser a:b\nCgroup 7\nCommand\n")
	f.Fuzz(func(t *testing.T, data string) {
		p, d := describe7(data)
		require.Equal(t, snapshot.PID(7), p.PID)
		require.NoError(t, snapshot.CheckText("name", p.Name))
		require.True(t, utf8.ValidString(p.Command) && len(p.Command) <= snapshot.MaxCommand)
		for _, name := range d.Names {
			require.NoError(t, snapshot.CheckName("name", string(name)))
		}
	})
}

// answer is what a host prints.
type answer struct {
	text string
	err  error
}

func (a answer) Run(_ context.Context, _ remote.Host, c remote.Command) (remote.Output, error) {
	if c.Args[len(c.Args)-1] != published {
		return remote.Output{}, errors.New("another command")
	}
	return remote.Output{Stdout: []byte("Welcome\n\n" + dataMark + "\n" + a.text)}, a.err
}

func TestPublished(t *testing.T) {
	for text, want := range map[string]int{
		`{"schema":"genv.hardware/1","devices":[{"index":0,"uuid":"GPU-a"},{"index":1,"uuid":"GPU-b"}]}`: 2,
		"": 0, "{": 0, `{"schema":"genv.hardware/2","devices":[{"index":0}]}`: 0,
	} {
		require.Len(t, Reading{Runner: answer{text: text}}.Published(t.Context(), remote.Host{}), want, text)
	}
	require.Nil(t, Reading{Runner: answer{err: errors.New("no such file")}}.Published(t.Context(), remote.Host{}))
}

func TestShowsNone(t *testing.T) {
	failed := func(class remote.Class, code int) error {
		return &remote.Error{Class: class, Err: &nvidiasmi.ExitError{Err: nvidiasmi.ErrFailed, ExitCode: code}}
	}
	require.True(t, ShowsNone(failed(remote.CommandFailed, 6)))
	require.True(t, ShowsNone(failed(remote.CommandFailed, 4)))
	require.False(t, ShowsNone(failed(remote.CommandFailed, 18)))
	require.False(t, ShowsNone(&remote.Error{Class: remote.Timeout, Err: errors.New("exit status 6")}))
	require.False(t, ShowsNone(nil))
}

func TestRenumbered(t *testing.T) {
	known := []hardware.BusDevice{{Index: 0, UUID: "GPU-a"}, {Index: 1, UUID: "GPU-b", Bytes: new(int64(5 << 20))}, {Index: 2, UUID: "GPU-c"}, {Index: 3}}
	load := 50
	look := &snapshot.Snapshot{
		Devices: []snapshot.Device{{Index: 0, UUID: "GPU-b", Utilization: &load}, {Index: 1, UUID: "GPU-c"}, {Index: 2, UUID: "GPU-new"}},
		Processes: []snapshot.Process{
			{PID: 7, Usage: []snapshot.DeviceUsage{{Index: 0}, {Index: 1}}},
			{PID: 8, Usage: []snapshot.DeviceUsage{{Index: 2}}},
		},
	}
	got := Renumbered(look, known)
	require.Equal(t, []snapshot.DeviceIndex{1, 2}, got.Processes[0].Indices())
	require.Len(t, got.Processes, 1, "it is unknown which device root knows GPU-new by")
	require.Equal(t, &load, got.Devices[1].Utilization)
	states := []gpus.State{}
	for _, g := range gpus.Of(got) {
		states = append(states, g.State)
	}
	require.Equal(t, []gpus.State{gpus.Unknown, gpus.Busy, gpus.Busy, gpus.Unknown}, states)
	require.Equal(t, []string{"nvidia-smi hides 2 of 4 GPUs from this login: whether they are in use is unknown"}, got.Warnings)
	require.Equal(t, []snapshot.DeviceIndex{0, 1}, look.Processes[0].Indices(), "the look is as it was")
	require.Empty(t, Renumbered(&snapshot.Snapshot{Devices: []snapshot.Device{{UUID: "GPU-a"}}}, known[:1]).Warnings)
}

func TestMarked(t *testing.T) {
	args := marked("printf", "%s", "0, GPU\ngenv-data\n")
	out := proctest.Try(exec.Command(args[0], args[1:]...).Output()).OK(t)
	for _, noise := range []string{"", "Welcome", "Welcome\n", "{}\n"} {
		require.Equal(t, "0, GPU\ngenv-data\n", string(dataIn(append([]byte(noise), out...))))
	}
	require.Equal(t, "0, GPU\n", string(dataIn([]byte("0, GPU\n"))))
}
