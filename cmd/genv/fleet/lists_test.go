package fleet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// says is a host that prints a text whatever it is asked.
func says(text string) inprocess.Func {
	return func(_ context.Context, r *inprocess.Request) int {
		_, _ = io.WriteString(r.Stdout, text)
		return 0
	}
}

// recordedFleet is the fleet on which 1.4.3's `genv remote` was recorded.
func recordedFleet(t *testing.T) *inprocess.Fleet {
	env := func(eid snapshot.EnvID, user snapshot.Username, name, created string) snapshot.Environment {
		return snapshot.Environment{
			EID: eid, UID: 1001, Username: user, Creation: genvtest.Date(t, "20/11/2026 "+created),
			Config: snapshot.EnvConfig{Name: name}, PIDs: []snapshot.PID{77},
		}
	}
	devices := func(attached map[int]snapshot.EnvID) []snapshot.Device {
		var list []snapshot.Device
		for i := range 8 {
			d := snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(81559)}
			if eid, ok := attached[i]; ok {
				d.Attachments = []snapshot.Attachment{{EID: eid, Time: genvtest.Date(t, "20/11/2026 21:11:26")}}
			}
			list = append(list, d)
		}
		return list
	}
	one := &snapshot.Snapshot{
		Environments: []snapshot.Environment{env("1667", "alice", "my-env", "21:11:25")},
		Devices:      devices(map[int]snapshot.EnvID{0: "1667", 1: "1667"}),
	}
	two := &snapshot.Snapshot{
		Environments: []snapshot.Environment{env("2020", "alice", "", "21:11:26"), env("3030", "bob", "llm/llama3/11434", "21:11:26")},
		Devices:      devices(map[int]snapshot.EnvID{0: "2020", 3: "3030"}),
	}
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "gpu-server-1", Handler: genvhost.New(one).Old()}, &inprocess.Server{Name: "gpu-server-2", Handler: genvhost.New(two).Old()},
		&inprocess.Server{Name: "gpu-server-dead", Handler: genvhost.New(one).Old()})
	require.NoError(t, f.Host("gpu-server-dead").Inject(inprocess.Faults{Down: true}))
	return f
}

func TestRecordedRemoteCommands(t *testing.T) {
	f := recordedFleet(t)
	for _, tt := range []struct {
		args string
		want string
		code int
	}{
		{args: "devices", want: `HOST                     TOTAL    AVAILABLE
gpu-server-1             8        6
gpu-server-2             8        6

Total 16 devices with 12 available on 2 hosts
`},
		{args: "devices --format csv --no-summary", want: `HOST,TOTAL,AVAILABLE
gpu-server-1,8,6
gpu-server-2,8,6
`},
		// 1.4.3 lets a long name run into the next column; here it makes room.
		{args: "envs --timestamp", want: `HOST                     ID      USER            NAME              CREATED
gpu-server-1             1667    alice           my-env            20/11/2026 21:11:25
gpu-server-2             2020    alice                             20/11/2026 21:11:26
gpu-server-2             3030    bob             llm/llama3/11434  20/11/2026 21:11:26

Total 3 environments on 2 hosts
`},
		{args: "envs --format csv --no-header --timestamp", want: `gpu-server-1,1667,alice,my-env,20/11/2026 21:11:25
gpu-server-2,2020,alice,,20/11/2026 21:11:26
gpu-server-2,3030,bob,llm/llama3/11434,20/11/2026 21:11:26

Total 3 environments on 2 hosts
`},
		{args: "llm ps --timestamp", want: `HOST                     MODEL       PORT    CREATED              EID     USER
gpu-server-2             llama3      11434   20/11/2026 21:11:26  3030    bob

Total 1 LLMs on 2 hosts
`},
		{args: "llms ps --format csv --timestamp --no-header --no-summary", want: "gpu-server-2,llama3,11434,20/11/2026 21:11:26,3030,bob\n"},
		{args: "query --name my-env --query hostname eid creation", want: "gpu-server-1,1667,20/11/2026 21:11:25\n"},
		{args: "query --query eid username config.name --name nobody", want: ""},
		{args: "query --name my-env --query creation", want: "20/11/2026 21:11:25\n"},
		{args: "query --name my-env --queries eid --queries hostname", want: "1667,gpu-server-1\n"},
		{args: "devices --no-header --no-summary --format tui", want: `gpu-server-1             8        6
gpu-server-2             8        6
`},
		{args: "devices --no-header", want: `gpu-server-1             8        6
gpu-server-2             8        6

Total 16 devices with 12 available on 2 hosts
`},
		{args: "devices --format csv", want: `HOST,TOTAL,AVAILABLE
gpu-server-1,8,6
gpu-server-2,8,6

Total 16 devices with 12 available on 2 hosts
`},
		{args: "envs --format csv --timestamp --no-summary", want: `HOST,ID,USER,NAME,CREATED
gpu-server-1,1667,alice,my-env,20/11/2026 21:11:25
gpu-server-2,2020,alice,,20/11/2026 21:11:26
gpu-server-2,3030,bob,llm/llama3/11434,20/11/2026 21:11:26
`},
	} {
		t.Run(tt.args, func(t *testing.T) {
			before := append([]string{"remote", "-F", f.SSHConfig(), "-H", "gpu-server-1,gpu-server-2"}, strings.Fields(tt.args)...)
			words := strings.Fields(tt.args)
			after := append([]string{"remote", words[0], "-F", f.SSHConfig(), "-H", "gpu-server-1,gpu-server-2"}, words[1:]...)
			more := append([]string{"remote", "-t", "5", "-q", "-l", "joe", "-ssh-config", f.SSHConfig(), "-host", "gpu-server-1,gpu-server-2"}, words...)
			for _, args := range [][]string{before, after, more} {
				require.Equal(t, genvtest.Result{Out: tt.want}, genvtest.Run(t, args...), "%q", args)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "hosts")
	require.NoError(t, os.WriteFile(file, []byte("# the lab\ngpu-server-1\n\ngpu-server-2\n"), 0o644))
	r := genvtest.Run(t, "remote", "-hostfile", file, "-F", f.SSHConfig(), "devices", "--no-header", "--no-summary", "--format", "csv")
	require.Equal(t, genvtest.Result{Out: "gpu-server-1,8,6\ngpu-server-2,8,6\n"}, r)
}

// With -e 1.4.3 prints nothing but the failure, also with -q, and fails.
func TestRecordedStopAtFailure(t *testing.T) {
	f := recordedFleet(t)
	for _, words := range []string{"devices", "envs", "query --name my-env --query eid"} {
		for _, quiet := range []string{"--quiet=false", "-q"} {
			r := genvtest.Run(t, append([]string{"remote", "-e", quiet, "-F", f.SSHConfig(), "-H", "gpu-server-1,gpu-server-2,gpu-server-dead"}, strings.Fields(words)...)...)
			require.NotZero(t, r.Code, "%s %s", words, quiet)
			require.Empty(t, r.Out, "%s %s", words, quiet)
			require.Contains(t, r.Err, "gpu-server-dead", "%s %s", words, quiet)
		}
	}
}

func TestAHostThatIsDown(t *testing.T) {
	f := recordedFleet(t)
	hosts := "gpu-server-1,gpu-server-2,gpu-server-dead,gpu-server-1"
	table := `HOST                     TOTAL    AVAILABLE
gpu-server-1             8        6
gpu-server-2             8        6

Total 16 devices with 12 available on 2 hosts
`
	loud := genvtest.Run(t, "remote", "-F", f.SSHConfig(), "-H", hosts, "devices")
	require.Equal(t, strings.TrimSuffix(table, "\n")+"; 1 host failed\n", loud.Out)
	require.Equal(t, command.ExitSomeFailed, loud.Code)
	require.Contains(t, loud.Err, "1 of 3 hosts failed:\n  unreachable (1)\n    gpu-server-dead: ")
	require.Contains(t, loud.Err, "next: check that the host is up")

	quiet := genvtest.Run(t, "remote", "-q", "-F", f.SSHConfig(), "-H", hosts, "devices")
	require.Equal(t, genvtest.Result{Out: table, Code: command.ExitSomeFailed}, quiet, "only the text is left out")

	none := genvtest.Run(t, "remote", "-q", "-F", f.SSHConfig(), "-H", "gpu-server-dead", "devices", "--format", "json").Exits(t, command.ExitNoneLeft)
	document := genvtest.Decode[fleet.DevicesDocument](t, none)
	require.Equal(t, "gpu-server-dead", document.Failed[0].Host)
	require.EqualValues(t, "unreachable", document.Failed[0].Class)

	genvtest.Run(t, "remote", "-e", "-F", f.SSHConfig(), "-H", hosts, "devices").Exits(t, command.ExitSomeFailed)
}

// TestHostsThatTalkNonsense: each is named with its cause, memory stays bounded, and the healthy host's answer is used.
func TestHostsThatTalkNonsense(t *testing.T) {
	good := &snapshot.Snapshot{Devices: []snapshot.Device{{TotalMemory: snapshot.MiB(80000)}}}
	whole := proctest.Try(snapshot.EncodeDevices(good.Devices)).OK(t)
	f := genvtest.StartFleet(t,
		&inprocess.Server{Name: "good", Handler: genvhost.New(good).Old()},
		&inprocess.Server{Name: "banner", Handler: says("Welcome to gpu!\nno mail\n" + string(whole) + "\n")},
		&inprocess.Server{Name: "nothing", Handler: says("")},
		&inprocess.Server{Name: "garbage", Handler: says("\x1b[2Jhello\x00\xff")},
		&inprocess.Server{Name: "half", Handler: says(string(whole[:len(whole)/2]))},
		&inprocess.Server{Name: "twice", Handler: says(string(whole) + string(whole))},
		&inprocess.Server{Name: "other", Handler: says(`{"devices": [{"index": 0, "uuid": "GPU-1", "total_memory": "1g", "attachments": []}]}`)},
		&inprocess.Server{Name: "flood", Handler: genvhost.New(good).Old()},
		&inprocess.Server{Name: "silent", Handler: inprocess.Func(func(ctx context.Context, _ *inprocess.Request) int { <-ctx.Done(); return 0 })},
	)
	require.NoError(t, f.Host("flood").Inject(inprocess.Faults{Flood: 33 << 20}))
	r := genvtest.Run(t, "remote", "devices", "-F", f.SSHConfig(), "-H", "good,banner,nothing,garbage,half,twice,other,silent", "--format", "json", "--command-timeout", "3").Exits(t, command.ExitSomeFailed)
	require.NotContains(t, r.Err, "\x1b")
	document := genvtest.Decode[fleet.DevicesDocument](t, r)
	require.Equal(t, 2, document.Total)
	classes := map[string]string{}
	for _, f := range document.Failed {
		classes[f.Host] = string(f.Class)
	}
	require.Equal(t, map[string]string{
		"nothing": "invalid-output", "garbage": "invalid-output", "half": "invalid-output", "twice": "invalid-output",
		"other": "version", "silent": "timeout",
	}, classes)

	// By itself, and without the race detector: a slow machine takes seconds to read it.
	flood := genvtest.Exec(t, exec.Command(genvtest.Program(t), "remote", "devices", "-F", f.SSHConfig(), "-H", "flood", "--format", "json", "--command-timeout", "10m"))
	require.NoError(t, json.Unmarshal([]byte(flood.Out), &document))
	require.EqualValues(t, "invalid-output", document.Failed[0].Class)
}

func TestWrongUsage(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"remote devices", "no hosts are selected"},
		{"remote enforce -H gpu[3-1]", `"gpu[3-1]"`},
		{"remote enforce -H a@b@", `"a@b@"`},
		{"remote enforce -H @nobody", "nobody"},
		{"remote enforce -H /no/such/hosts.yaml", "/no/such/hosts.yaml"},
		{"remote enforce --hostfile /no/such/file", "/no/such/file"},
		{"remote enforce -H a --interval -1", `--interval "-1"`},
		{"remote enforce -H a --interval nan", `--interval "nan"`},
		{"remote enforce -H a --cycles -1", "--cycles -1"},
		{"remote enforce -H a --max-devices-per-user -1", "--max-devices-per-user -1"},
		{"remote enforce -H a --max-devices-per-user x", `"x"`},
		{"remote enforce -H a --max-devices-for-user john=x", `"john=x"`},
		{"remote enforce -H a --max-devices-for-user john=1 john=2", "john has both 1 and 2"},
		{"remote enforce -H a --env-memory --no-env-memory", "exclude each other"},
		{"remote enforce -H a --fanout 0", "--fanout 0"},
		{"remote enforce -H a --ssh /usr/bin/ssh", `--ssh "/usr/bin/ssh": write builtin or openssh`},
		{"remote enforce -H a --web 127.0.0.1:1 --web-names some", `--web-names "some": write all, self or none`},
		{"remote install -H a --state x", `--state "x": write root or shared`},
		{"remote history --audit-log x --rule ilde", `--rule "ilde": write caps, env-devices, env-memory, idle,`},
		{"remote enforce -H a --ssh openssh --insecure-ignore-host-keys", "exclude each other"},
		{"remote enforce -H a -t 0", `--timeout "0"`},
		{"remote enforce -H a --format csv", `--format "csv"`},
		{"remote enforce -H a --timestamps sometimes", `--timestamps "sometimes": write auto, always or never`},
		{"remote enforce -H a --summary 0", `--summary "0"`},
		{"remote devices -H a extra", `"extra"`},
		{"remote query -H a", "missing --query"},
		{"remote query -H a --query nonsense", `"nonsense"`},
		{"remote nonsense", `"nonsense"`},
		{"nonsense", `"nonsense"`},
		{"enforce --nonsense", "-nonsense"},
		{"usage snapshot --type nonsense", `"nonsense"`},
	} {
		t.Run(tt.args, func(t *testing.T) {
			r := genvtest.Run(t, strings.Fields(tt.args)...).Exits(t, command.ExitFailed)
			require.Empty(t, r.Out)
			require.Contains(t, r.Err, tt.want)
			require.Equal(t, 1, strings.Count(r.Err, "\n"), "one line: %s", r.Err)
		})
	}
}

// TestHostsFromAPipe: hosts may come from a pipe, and a FIFO that is not written to delays no command.
func TestHostsFromAPipe(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "hosts")
	require.NoError(t, unix.Mkfifo(fifo, 0o666))
	genvtest.Run(t, "remote", "devices", "--hostfile", fifo).Exits(t, command.ExitFailed, "no hosts")

	config := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(config, []byte("Host *\n Port 1\n"), 0o600))
	genvtest.Exec(t, exec.Command("bash", "-c", genvtest.Program(t)+" remote -F "+config+" --hostfile <(sleep 0.1; echo 127.93.7.7) devices")).Exits(t, command.ExitNoneLeft, "127.93.7.7: no connection")
}

// manyDown is a fleet with hosts that answer, and the configuration for 60 that don't exist.
func manyDown(t *testing.T) (config string) {
	f, _ := monitoredFleet(t)
	hosts := proctest.ReadFile(t, f.SSHConfig())
	var b strings.Builder
	for i := 1; i <= 60; i++ {
		fmt.Fprintf(&b, "Host gpu-%02d.lab\n HostName 127.9.0.%d\n Port 1\n", i, i)
	}
	config = filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(config, append([]byte(b.String()), hosts...), 0o600))
	return config
}

// oneStream runs a command line with stdout and stderr in one place, as on a terminal.
func oneStream(t *testing.T, args ...string) (code int, said string) {
	var both bytes.Buffer
	p := command.Program{In: strings.NewReader(""), Out: &both, Err: &both, Getenv: genvtest.Getenv(t), Now: time.Now}
	code = command.Run(t.Context(), p, genvtest.Commands, append([]string{"genv"}, args...))
	return code, both.String()
}

// TestManyHostsThatFailAlike: in every command they are a few lines, with the next step once, in front of the result.
func TestManyHostsThatFailAlike(t *testing.T) {
	config := manyDown(t)
	for command, last := range map[string]string{
		"devices":                         "Total 2 devices with 1 available on 1 hosts; 60 hosts failed",
		"devices --format csv":            "on 1 hosts; 60 hosts failed",
		"devices --format json":           `"failed":[`,
		"envs":                            "Total 1 environments on 1 hosts; 60 hosts failed",
		"gpus":                            "; 60 hosts failed",
		"query --query hostname":          "nosudo",
		"top --plain --once --socket off": "nosudo: ",
		"wait --within 5s":                "genv: no host had",
		"enforce --interval 0":            "`ssh HOST true` connects",
	} {
		hosts := "nosudo,gpu-[01-60].lab"
		if strings.HasPrefix(command, "enforce") {
			hosts = "ours,gpu-[01-60].lab"
		}
		code, said := oneStream(t, append([]string{"remote", "-F", config, "-H", hosts}, strings.Fields(command)...)...)
		if !strings.HasPrefix(command, "wait") {
			require.Equal(t, 3, code, command)
		}
		lines := strings.Split(strings.TrimSuffix(said, "\n"), "\n")
		if n := len(lines) - 1; strings.HasPrefix(command, "enforce") {
			require.Contains(t, lines[n], "1 of 61 hosts answered, 0 findings: nothing was done")
			lines = lines[:n]
		}
		require.LessOrEqual(t, len(lines), 9, said)
		require.Contains(t, said, "gpu-[01-60].lab: connection refused (60 hosts)\n", command)
		require.Equal(t, 1, strings.Count(said, "next: "), said)
		require.Contains(t, lines[len(lines)-1], last, said)
		require.Contains(t, lines[0], "60 of 61 hosts failed:", command)
	}
}

// -v says what holds, and the help says the same of the default.
func TestTheCommandTimeoutIsSaid(t *testing.T) {
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: genvhost.New(&snapshot.Snapshot{})})
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--interval", "0"}, "command_timeout=30s"},
		{[]string{"--interval", "20ms", "--cycles", "2"}, "command_timeout=10s"},
		{[]string{"--interval", "20ms", "--cycles", "2", "--command-timeout", "5"}, "command_timeout=5s"},
	} {
		r := genvtest.Run(t, append([]string{"remote", "enforce", "-v", "-F", f.SSHConfig(), "-H", "a"}, tt.args...)...).OK(t)
		require.Contains(t, r.Err, tt.want)
	}
	require.Contains(t, genvtest.Run(t, "help", "connection").Out, "30; in a loop of enforce the interval, from 10 to 30")
}
