package fleet_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	simulated "github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// TestGPUsOfEachKindOfHost, over a real sshd and without sudo: what there is to know about
// GPUs is known of a host with our genv, of one with 1.4.3, and of one without genv.
func TestGPUsOfEachKindOfHost(t *testing.T) {
	f := sshd.Start(t, sshd.Options{
		Hosts: []sshd.HostOptions{{Name: "ours", GPUs: 3}, {Name: "old", GPUs: 3, Rights: sshd.MaySudo143}, {Name: "bare", GPUs: 3, Rights: sshd.NoGenv}},
		Genv:  genvtest.Program(t),
	})
	called := callsOfSudo(t, f)
	jobs := map[string]*testfleet.Process{}
	for _, h := range f.Hosts() {
		job := testfleet.Job{User: "alice", Env: genvtest.Outside, Command: []string{"/bin/sleep", "1000001"}, Uses: []testfleet.Use{{Device: 0, MiB: 2048}}}
		if h.Name != "bare" {
			env := genvtest.Activate(t, h, testfleet.Environment{User: "alice", Config: snapshot.EnvConfig{Name: "train"}, Devices: []snapshot.DeviceIndex{0}})
			job.Env = append(job.Env, env.Var())
			genvtest.Activate(t, h, testfleet.Environment{User: "bob", Devices: []snapshot.DeviceIndex{1}})
		}
		jobs[h.Name] = genvtest.StartJob(t, h, job)
	}
	asCarol := []string{"remote", "gpus", "-F", f.SSHConfig(), "-H", "ours,old,bare"}
	look := func(args ...string) genvtest.Result { return genvtest.Run(t, append(asCarol, args...)...) }
	r := look("--format", "json").OK(t)
	document := genvtest.Decode[live.GPUs](t, r)
	require.Equal(t, []int{9, 4}, []int{document.Total, document.Free})
	for i, via := range []agent.Via{agent.ViaCommands, agent.ViaCommands, agent.ViaReadOnly} {
		host := document.Hosts[i]
		require.Equal(t, via, host.Via)
		requireUsedByAlice(t, &host.GPUs[0], jobs[string(host.Host)].PID)
		require.Equal(t, gpus.Free, host.GPUs[2].State)
		if host.Host != "bare" {
			require.Equal(t, []snapshot.Username{"alice"}, host.GPUs[0].Users())
			require.Equal(t, "train", host.GPUs[0].Attached[0].Name)
			require.Equal(t, gpus.Attached, host.GPUs[1].State)
			require.WithinDuration(t, time.Now(), host.GPUs[1].Since(), time.Minute)
		}
	}
	require.Regexp(t, `(?m)^ours  0    H100 80GB HBM3  busy      2\.0/80   97%   63C   555W   alice train  \S+ +550\.163\.01 +alice \d+ 2\.0 GiB sleep 1000001$`, look().Out)
	require.Equal(t, "ours,1,bob\nold,1,bob\n", onlyColumns(t, look("--user", "bob", "--format", "csv", "--no-header").Out, 0, 1, 10))
	require.Equal(t, "ours,2\nold,2\nbare,1\nbare,2\n", onlyColumns(t, look("--free", "--format", "csv", "--no-header").Out, 0, 1))
	require.Contains(t, look("--free", "--model", "a100").Out, "\n0 of 0 GPUs are free on 3 hosts\n")
	require.Empty(t, called())
}

// TestGPUsThatAreDifferent: a MIG instance's process is on its GPU, and one that nvidia-smi can't measure has failed.
func TestGPUsThatAreDifferent(t *testing.T) {
	const instance = "MIG-11111111-2222-3333-4444-555555555555"
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "ours", GPUs: 3}, {Name: "bare", GPUs: 3, Rights: sshd.NoGenv}}, Genv: genvtest.Program(t)})
	for _, h := range f.Hosts() {
		p := genvtest.StartJob(t, h, testfleet.Job{User: "bob", Env: genvtest.Outside})
		driver := proctest.Try(simulated.Read(h.GPUs)).OK(t)
		driver.Devices[0].MIG = []simulated.MIG{{Profile: "1g.10gb", UUID: instance}}
		driver.Devices[1].Fault = simulated.Broken
		driver.Apps = append(driver.Apps, simulated.App{PID: int(p.PID), UUID: driver.Devices[0].MIG[0].UUID, UsedMiB: new(int64(70))})
		require.NoError(t, driver.Write(h.GPUs))
	}
	r := genvtest.Run(t, "remote", "gpus", "-F", f.SSHConfig(), "-H", "ours,bare", "--format", "json").OK(t)
	document := genvtest.Decode[live.GPUs](t, r)
	require.Equal(t, 2, document.Free)
	for _, host := range document.Hosts {
		require.Len(t, host.GPUs[0].Processes, 1, host.Host)
		require.Nil(t, host.GPUs[0].Utilization, host.Host)
		require.Equal(t, gpus.Busy, host.GPUs[0].State, "unknown utilization is not idle")
		require.Equal(t, []snapshot.GPUUUID{instance}, host.GPUs[0].Processes[0].Instances, host.Host)
		memory := int64(9984 << 20) // less than the name of the profile says
		require.Equal(t, []gpus.Instance{{UUID: instance, Profile: "1g.10gb", Memory: &memory}}, host.GPUs[0].Instances, host.Host)
		require.Equal(t, []gpus.State{gpus.Failed, gpus.Free}, []gpus.State{host.GPUs[1].State, host.GPUs[2].State}, host.Host)
	}
	r = genvtest.Run(t, "remote", "gpus", "-F", f.SSHConfig(), "-H", "ours,bare")
	require.Contains(t, r.Out, "\n2 of 6 GPUs are free on 2 hosts; 2 have failed\n")
	require.Equal(t, 2, strings.Count(r.Out, " on "+instance+"\n"), r.Out)
}

// requireUsedByAlice requires that what each kind of host shows is there.
func requireUsedByAlice(t *testing.T, g *gpus.GPU, pid snapshot.PID) {
	t.Helper()
	require.Equal(t, gpus.Busy, g.State)
	require.Equal(t, "NVIDIA H100 80GB HBM3", g.Model)
	require.True(t, strings.HasPrefix(string(g.UUID), "GPU-"))
	require.EqualValues(t, 2<<30, *g.MemoryUsed)
	require.EqualValues(t, 81559<<20, *g.MemoryTotal)
	require.Positive(t, *g.Utilization)
	require.Positive(t, *g.Temperature)
	require.Positive(t, *g.Power)
	require.Equal(t, []gpus.Process{{PID: pid, User: "alice", Command: "/bin/sleep 1000001", Memory: new(int64(2 << 30))}}, g.Processes)
}

// onlyColumns leaves some columns of CSV.
func onlyColumns(t *testing.T, text string, columns ...int) string {
	t.Helper()
	rows := proctest.Try(csv.NewReader(strings.NewReader(text)).ReadAll()).OK(t)
	var b strings.Builder
	for _, row := range rows {
		for i, c := range columns {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(row[c])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestAFailedHostHasNoFreeGPUs: it is named as failed, also in the summary and in JSON.
func TestAFailedHostHasNoFreeGPUs(t *testing.T) {
	f, _ := monitoredFleet(t)
	look := func(hosts string, args ...string) genvtest.Result {
		return genvtest.Run(t, append([]string{"remote", "gpus", "-F", f.SSHConfig(), "-H", hosts}, args...)...)
	}
	r := look("nosudo,down").Exits(t, command.ExitSomeFailed, "1 of 2 hosts failed:\n  unreachable (1)\n    down: ")
	require.NotContains(t, r.Out, "down")
	require.Contains(t, r.Out, "\n0 of 2 GPUs are free on 1 host; the state of 1 is unknown; 1 host failed\n")

	r = look("nosudo,down", "--format", "csv", "-q")
	require.Equal(t, command.ExitSomeFailed, r.Code, "-q leaves the exit code alone")
	require.Empty(t, r.Err)
	require.Equal(t, 3, strings.Count(r.Out, "\n"), "a header and two GPUs: %s", r.Out)

	r = look("down", "--format", "json").Exits(t, command.ExitNoneLeft)
	document := genvtest.Decode[live.GPUs](t, r)
	require.Empty(t, document.Hosts)
	require.Equal(t, "down", document.Failed[0].Host)
	require.Zero(t, document.Free)
}

// TestGPUsWithoutNvidiaSMI: registered devices without a look at their processes are not known to be free.
func TestGPUsWithoutNvidiaSMI(t *testing.T) {
	absent := genvhost.New(metered()).Old()
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: inprocess.Func(func(ctx context.Context, r *inprocess.Request) int {
		if strings.Contains(r.Line, "nvidia-smi") {
			fmt.Fprintln(r.Stderr, "env: ‘nvidia-smi’: No such file or directory")
			return 127
		}
		return absent.Handle(ctx, r)
	})})
	r := genvtest.Run(t, "remote", "gpus", "-F", f.SSHConfig(), "-H", "a").Exits(t, command.ExitNoneLeft, "command-failed (1)\n    a: ", "next: install NVIDIA's driver")
	require.Contains(t, r.Out, "\n0 of 0 GPUs are free on 0 hosts; 1 host failed\n")
}

// TestGPUsWithoutGenvInPath: what the login can't ask genv about may be attached.
func TestGPUsWithoutGenvInPath(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", Rights: sshd.OnlySnapshot}}, Genv: genvtest.Program(t)})
	genvtest.Activate(t, f.Host("gpu-01"), testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0}})
	genvtest.Run(t, "remote", "gpus", "-F", f.SSHConfig(), "-H", "gpu-01").Exits(t, command.ExitNoneLeft, "genv-missing (1)", "next: install genv on the host where every login finds it (/usr/local/bin)")
}

func TestWrongUseOfGPUs(t *testing.T) {
	for args, want := range map[string]string{
		"gpus --sort x":               `--sort "x": write model, state, memory, utilization, temperature, power, user or since`,
		"gpus --format yaml":          `--format "yaml"`,
		"gpus 0":                      `"0"`,
		"remote gpus -H a --sort x":   `--sort "x"`,
		"remote gpus -H a --user":     "flag needs an argument",
		"remote gpus -H a --format x": `--format "x"`,
	} {
		require.Empty(t, genvtest.Run(t, strings.Fields(args)...).Exits(t, command.ExitFailed, want).Out)
	}
}

// onTerminal is what a command prints on a terminal of a width.
func onTerminal(t *testing.T, width uint16, getenv func(string) string, args ...string) string {
	t.Helper()
	master, tty, err := pty.Open()
	require.NoError(t, err)
	defer master.Close()
	require.NoError(t, pty.Setsize(tty, &pty.Winsize{Rows: 40, Cols: width}))
	shown := make(chan string)
	go func() {
		text, _ := io.ReadAll(master) // which ends with EIO
		shown <- string(text)
	}()
	var errs strings.Builder
	p := command.Program{In: strings.NewReader(""), Out: tty, Err: &errs, Getenv: getenv, Now: time.Now}
	code := command.Run(t.Context(), p, genvtest.Commands, append([]string{"genv"}, args...))
	require.NoError(t, tty.Close())
	require.Zero(t, code, errs.String())
	return strings.ReplaceAll(<-shown, "\r\n", "\n")
}

// TestGPUsOnATerminal: its width decides about the columns, and its user about colour.
func TestGPUsOnATerminal(t *testing.T) {
	f, _ := monitoredFleet(t)
	args := []string{"remote", "gpus", "-F", f.SSHConfig(), "-H", "nosudo,bare"}
	for _, width := range []uint16{80, 120, 160, 200} {
		text := onTerminal(t, width, environ("TERM=xterm", "NO_COLOR=1"), args...)
		require.NotContains(t, text, "\x1b")
		require.Equal(t, width >= 100, strings.Contains(text, "POWER"), "%d: %s", width, text)
		for line := range strings.Lines(text) {
			require.LessOrEqual(t, utf8.RuneCountInString(line), int(width)+1, line)
		}
	}
	require.Contains(t, onTerminal(t, 120, environ("TERM=xterm"), args...), "\x1b[35munknown\x1b[0m")
	require.NotContains(t, onTerminal(t, 120, environ("TERM=dumb"), args...), "\x1b")
	require.NotContains(t, onTerminal(t, 80, environ("TERM=xterm"), append(args, "--format", "csv")...), "…")
}

// TestHostileNamesOfGPUs, over a real sshd: what users call environments and commands is a cell, and a text in JSON.
func TestHostileNamesOfGPUs(t *testing.T) {
	f := sshd.Start(t, sshd.Options{
		Hosts: []sshd.HostOptions{{Name: "ours", GPUs: 2}, {Name: "old", GPUs: 2, Rights: sshd.MaySudo143}, {Name: "bare", GPUs: 2, Rights: sshd.NoGenv}},
		Genv:  genvtest.Program(t),
	})
	evil := "x\x1b[2J\x1b]0;t\a\nUid:\t0\nUser root:x:60802:0::/:/bin/sh\nCommand 1 ls; <b>\u202e" + strings.Repeat("é", 5000)
	for _, h := range f.Hosts() {
		if h.Name != "bare" {
			genvtest.Activate(t, h, testfleet.Environment{User: "bob", Config: snapshot.EnvConfig{Name: `=1+1"; alice <b>`}, Devices: []snapshot.DeviceIndex{0}})
		}
		genvtest.StartJob(t, h, testfleet.Job{User: "bob", Env: genvtest.Outside, Name: evil, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	}
	look := func(args ...string) string {
		r := genvtest.Run(t, append([]string{"remote", "gpus", "-F", f.SSHConfig(), "-H", "ours,old,bare"}, args...)...).OK(t)
		require.NotRegexp(t, "[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e]", r.Out)
		return r.Out
	}
	var document live.GPUs
	require.NoError(t, json.Unmarshal([]byte(look("--format", "json")), &document))
	for _, host := range document.Hosts {
		process := host.GPUs[0].Processes[0]
		require.Equal(t, snapshot.Username("bob"), process.User, host.Host)
		require.True(t, strings.HasPrefix(process.Command, "x?[2J"), "%s: %q", host.Host, process.Command)
		require.LessOrEqual(t, len(process.Command), snapshot.MaxCommand)
	}
	require.Equal(t, 9, strings.Count(look(), "\n"), "a header, six GPUs, and the summary")
	rows := proctest.Try(csv.NewReader(strings.NewReader(look("--format", "csv", "--no-header"))).ReadAll()).OK(t)
	require.Len(t, rows, 6)
	require.Equal(t, `bob "=1+1'; alice <b>"`, rows[0][11])
}

// TestSpreadsheets: what a user calls an environment is text in every CSV.
func TestSpreadsheets(t *testing.T) {
	s := &snapshot.Snapshot{Environments: []snapshot.Environment{{
		EID: "@1", UID: 1001, Username: "-u", Creation: genvtest.Date(t, "20/11/2026 21:11:25"), Config: snapshot.EnvConfig{Name: "=1+1;=2"}, PIDs: []snapshot.PID{7},
	}}}
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: genvhost.New(s).Old()})
	r := genvtest.Run(t, "remote", "envs", "-F", f.SSHConfig(), "-H", "a", "--format", "csv", "--no-header", "--no-summary", "--timestamp")
	require.Equal(t, `a,"'@1","'-u","'=1+1;=2",20/11/2026 21:11:25`+"\n", r.Out, r.Err)
	r = genvtest.Run(t, "remote", "query", "-F", f.SSHConfig(), "-H", "a", "--query", "eid", "config.name", "pids")
	require.Equal(t, `"'@1","'=1+1;=2",7`+"\n", r.Out, r.Err)
}
