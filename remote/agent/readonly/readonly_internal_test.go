package readonly

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
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
	p, d := describe7(described)
	require.Equal(t, -(3*3600 + 1800), *d.UTCOffset)
	require.Equal(t, &snapshot.Process{PID: 7, Name: "python3", Command: "python3 train.py", Container: container, UID: new(snapshot.UID(1001))}, p,
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

// nvidiaSMI is what a host prints for an argument of nvidia-smi, or what root has published. Nothing is exit code 6.
type nvidiaSMI map[string]string

func (n nvidiaSMI) answer(args ...string) nvidiasmi.RunResult {
	for argument, text := range n {
		if text != "" && strings.Contains(strings.Join(args, " "), argument) {
			return nvidiasmi.RunResult{Stdout: []byte(text)}
		}
	}
	return nvidiasmi.RunResult{ExitCode: 6}
}

func (n nvidiaSMI) Run(_ context.Context, _ remote.Host, c remote.Command) (remote.Output, error) {
	out, end := n.answer(c.Args...), ""
	if c.Args[len(c.Args)-1] != published {
		end = "\n" + dataMark + " " + strconv.Itoa(out.ExitCode)
	}
	return remote.Output{Stdout: []byte("Welcome\n\n" + dataMark + "\n" + string(out.Stdout) + end)}, nil
}

func TestPublished(t *testing.T) {
	for text, want := range map[string]int{
		`{"schema":"genv.hardware/1","devices":[{"index":0,"uuid":"GPU-a"},{"index":1,"uuid":"GPU-b"}]}`: 2,
		"": 0, "{": 0, `{"schema":"genv.hardware/2","devices":[{"index":0}]}`: 0,
	} {
		require.Len(t, Reading{Runner: nvidiaSMI{published: text}}.Published(t.Context(), remote.Host{}), want, text)
	}
}

// here is nvidia-smi as genv on the host asks it.
type here struct{ nvidiaSMI }

func (h here) Run(_ context.Context, args ...string) (nvidiasmi.RunResult, error) {
	return h.answer(args...), nil
}

// TestInstances: genv finds the same MIG instances on a host as a controller that only reads it.
func TestInstances(t *testing.T) {
	const (
		divided = "0, GPU-0, 81559, 10, [N/A], 31, 70.12, H100, 550.1, Disabled, Default, Enabled, 700\n"
		plain   = "1, GPU-1, 81559, 10, 7, 31, 70.12, H100, 550.1, Disabled, Default, [N/A], 700\n"
		unnamed = "2, [N/A], 81559, 10, [N/A], 31, 70.12, H100, 550.1, Disabled, Default, Enabled, 700\n"
		a, b    = "  MIG 1g.10gb Device 0: (UUID: MIG-a)\n", "  MIG 1g.10gb Device 1: (UUID: MIG-b)\n"
		gpu0    = "GPU 0: H100 (UUID: GPU-0)\n"
	)
	const instance = "<mig_device><gpu_instance_id>7</gpu_instance_id><fb_memory_usage><total>9984 MiB</total></fb_memory_usage></mig_device>"
	const details = "<nvidia_smi_log><gpu><uuid>GPU-0</uuid><mig_devices>" + instance + "</mig_devices><processes><process_info>" +
		"<gpu_instance_id>7</gpu_instance_id><pid>100</pid></process_info></processes></gpu></nvidia_smi_log>"
	const known, partA, partB = "MIG-a 1g.10gb 9984mi 7\n", "MIG-a 1g.10gb  \n", "MIG-b 1g.10gb  \n"
	for name, row := range map[string]struct{ gpus, apps, list, details, want string }{
		"one":                     {divided, "GPU-0, 100, 5", gpu0 + a, details, known + "[0] [MIG-a]\n"},
		"no process":              {divided, "\n", gpu0 + a, details, known},
		"named by the process":    {divided, "MIG-b, 100, 5", gpu0 + a + b, details, partA + partB + "[0] [MIG-b]\n"},
		"no details":              {divided, "GPU-0, 100, 5", gpu0 + a, "", partA + "[0] []\n"},
		"no list":                 {divided, "GPU-0, 100, 5", "", "", "[0] []\n"},
		"no list, an older name":  {divided, "MIG-GPU-0/7/0, 100, 5", "", "", "[0] []\n"},
		"no instance":             {divided, "\n", gpu0, "", "it is in MIG mode and has no instance"},
		"without UUID":            {divided, "\n", gpu0 + "  MIG 1g.10gb Device 0: (UUID: ?)\n", "", ""},
		"one of two without UUID": {divided, "GPU-0, 100, 5", gpu0 + "  MIG 1g.10gb Device 0\n" + b, strings.Replace(details, instance, instance+instance, 1), "MIG-b 1g.10gb 9984mi 7\n[0] []\n"},
		"of another GPU":          {divided, "\n", "GPU 0: H100 (UUID: GPU-8)\n" + a, "", ""},
		"not divided":             {plain, "GPU-1, 100, 5", "GPU 1: H100 (UUID: GPU-1)\n" + a, "", "[1] []\n"},
		"named, yet not divided":  {plain, "MIG-GPU-1/7/0, 100, 5", "", "", "[1] []\n"},
		"a GPU without UUID":      {unnamed, "[N/A], 100, 5", "GPU 2: H100 (UUID: GPU-2)\n" + a, "", ""},
	} {
		n := nvidiaSMI{"--query-gpu": row.gpus, "--query-compute-apps": row.apps, "-L": row.list, "-q -x": row.details}
		s := proctest.Try(Reading{Runner: n}.Look(t.Context(), remote.Host{}, 0)).OK(t, name)
		got := s.Devices[0].Unusable
		for _, i := range s.Devices[0].Instances {
			got += fmt.Sprintln(i.UUID, i.Profile, i.Total, i.Pool)
		}
		for _, p := range s.Processes {
			got += fmt.Sprintln(p.Indices(), p.Instances)
		}
		require.Equal(t, row.want, got, name)
		c := &local.Collector{SMI: nvidiasmi.New(here{n}, 0), Proc: proc.FS{Root: t.TempDir()}, Now: time.Now}
		require.Equal(t, s.Devices, proctest.Try(c.Instances(t.Context())).OK(t, name), name)
	}
}

// TestHiddenGPUs: a guard hides GPUs from the login, and numbers the others from 0.
func TestHiddenGPUs(t *testing.T) {
	n := nvidiaSMI{
		published: `{"schema":"genv.hardware/1","devices":[{"index":0,"uuid":"GPU-a"},` +
			`{"index":1,"uuid":"GPU-b","total_memory":5242880},{"index":2,"uuid":"GPU-c","mig":[{"uuid":"MIG-a"}]},{"index":3}]}`,
		"--query-gpu":          "0, GPU-b, 5, 1, 50, 31, 70, X\n1, GPU-c, 5, 1, 50, 31, 70, X\n2, GPU-new, 5, 1, 50, 31, 70, X\n",
		"--query-compute-apps": "GPU-b, 7, 1\nGPU-c, 7, 1\nGPU-new, 8, 1\nGPU-new, 8, 2\n",
		"-q -x":                "<nvidia_smi_log><gpu><uuid>GPU-c</uuid><mig_devices><mig_device/></mig_devices><processes><process_info><pid>7</pid></process_info></processes></gpu></nvidia_smi_log>",
	}
	look := func(registered int, hidden string, states ...gpus.State) *snapshot.Snapshot {
		s := proctest.Try(Reading{Runner: n}.Look(t.Context(), remote.Host{}, registered)).OK(t)
		require.Equal(t, hidden != "", slices.Contains(s.Warnings, "nvidia-smi hides "+hidden+" of 4 GPUs from this login: whether they are in use is unknown"))
		for i, g := range gpus.Of(s) {
			require.Equal(t, states[i], g.State)
		}
		return s
	}
	look(3, "", gpus.Busy, gpus.Busy, gpus.Busy)
	got := look(4, "2", gpus.Unknown, gpus.Busy, gpus.Busy, gpus.Unknown)
	require.Equal(t, []snapshot.DeviceIndex{1, 2}, got.Processes[0].Indices())
	require.Len(t, got.Processes, 1, "it is unknown which device root knows GPU-new by")
	require.Equal(t, []snapshot.GPUUUID{"MIG-a"}, got.Processes[0].Instances)
	require.Len(t, got.Warnings, 2, "each once")
	require.Equal(t, new(50), got.Devices[1].Utilization)

	n["--query-gpu"], n["--query-compute-apps"] = "", ""
	look(4, "4", gpus.Unknown, gpus.Unknown, gpus.Unknown, gpus.Unknown)
	n[published] = ""
	require.ErrorIs(t, proctest.Try(Reading{Runner: n}.Look(t.Context(), remote.Host{}, 4)).Err, nvidiasmi.ErrNoDevices)
}

func TestMarked(t *testing.T) {
	args := marked("printf", "%s", "0, GPU\ngenv-data\n")
	out := proctest.Try(exec.Command(args[0], args[1:]...).Output()).OK(t)
	require.Equal(t, "0, GPU\ngenv-data\n", string(dataIn(append([]byte("Welcome"), out...))))
	require.Equal(t, "0, GPU\n", string(dataIn([]byte("0, GPU\n"))))
}
