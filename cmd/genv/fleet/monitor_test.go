package fleet_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// monitor is `genv monitor` or `genv remote monitor`, in this process.
type monitor struct {
	t         *testing.T
	configDir string
	url       string // of the metrics
	stop      context.CancelFunc
	ended     chan int // its exit code
	stderr    testfleet.ProgramOutput
}

func (m *monitor) said() string { return m.stderr.String() }

var servedAt = regexp.MustCompile(`Metrics: (http://\S+), collected`)

func startMonitor(t *testing.T, getenv func(string) string, args ...string) *monitor {
	m := &monitor{t: t, configDir: filepath.Join(t.TempDir(), "metrics"), ended: make(chan int, 1)}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	p := command.Program{In: strings.NewReader(""), Out: io.Discard, Err: &m.stderr, Getenv: getenv, Now: time.Now}
	args = append(append([]string{"genv"}, args...), "--port", "0", "--interval", "500ms", "--config-dir", m.configDir)
	go func() { m.ended <- command.Run(ctx, p, genvtest.Commands, args) }()
	t.Cleanup(func() { m.end() })
	require.Eventually(t, func() bool { return servedAt.MatchString(m.said()) || len(m.ended) > 0 }, time.Minute, 10*time.Millisecond)
	require.Regexp(t, servedAt, m.said())
	m.url = servedAt.FindStringSubmatch(m.said())[1]
	return m
}

// end stops it, and returns its exit code.
func (m *monitor) end() int {
	m.stop()
	code := <-m.ended
	m.ended <- code
	return code
}

func (m *monitor) get() string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	answer, err := client.Get(m.url)
	require.NoError(m.t, err)
	defer answer.Body.Close()
	return string(proctest.Try(io.ReadAll(answer.Body)).OK(m.t))
}

// wait waits until the metrics have all the lines, and none that begins with one of not.
func (m *monitor) wait(lines []string, not ...string) (text string) {
	m.t.Helper()
	var wrong string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		text, wrong = m.get(), ""
		for _, line := range lines {
			if !strings.Contains(text, "\n"+line+"\n") {
				wrong += "missing: " + line + "\n"
			}
		}
		for _, line := range not {
			if strings.Contains(text, "\n"+line) {
				wrong += "should not be there: " + line + "\n"
			}
		}
		if wrong == "" {
			return text
		}
	}
	require.Empty(m.t, wrong, "%s\n%s", m.said(), text)
	return text
}

func environ(variables ...string) func(string) string {
	return func(name string) string {
		for _, v := range variables {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		if name == "GENV_CONFIG_DIR" {
			return "off"
		}
		return ""
	}
}

// metered is a host with an environment of alice's on device 0, a process in it, and what nvidia-smi measures.
func metered() *snapshot.Snapshot {
	uid, percent, celsius, watts := snapshot.UID(1001), 97, 63, 555.5
	return &snapshot.Snapshot{
		Environments: []snapshot.Environment{{EID: "1667", UID: uid, Username: "alice", Creation: snapshot.DateOf(time.Now()), PIDs: []snapshot.PID{60}}},
		Devices: []snapshot.Device{
			{
				Index: 0, TotalMemory: snapshot.MiB(81559), UsedMemory: snapshot.MiB(1000), Utilization: &percent, Temperature: &celsius, Power: &watts,
				Attachments: []snapshot.Attachment{{EID: "1667", Time: snapshot.DateOf(time.Now())}},
			},
			{Index: 1, TotalMemory: snapshot.MiB(81559)},
		},
		Processes: []snapshot.Process{{PID: 70, Start: 5, EID: "1667", UID: &uid, Usage: []snapshot.DeviceUsage{{Memory: snapshot.MiB(1000)}}}},
	}
}

// nvidiaSMI answers for the driver of a host with a used device, and passes on what else it is asked.
func nvidiaSMI(others inprocess.Handler) inprocess.Handler {
	return inprocess.Func(func(ctx context.Context, r *inprocess.Request) int {
		switch {
		case strings.Contains(r.Line, "--query-gpu"):
			fmt.Fprint(r.Stdout, "\ngenv-data\n0, GPU-a, 81559, 2000, 50, 44, 70.12, NVIDIA H100\n\ngenv-data 0\n")
		case strings.Contains(r.Line, "--query-compute-apps"):
			fmt.Fprint(r.Stdout, "\ngenv-data\nGPU-a, 88, 2000\n\ngenv-data 0\n")
		default:
			return others.Handle(ctx, r)
		}
		return 0
	})
}

func refusesSudo(s *snapshot.Snapshot) inprocess.Func {
	return func(ctx context.Context, r *inprocess.Request) int {
		if strings.Contains(r.Line, "sudo -n genv") {
			fmt.Fprintln(r.Stderr, "sudo: a password is required")
			return 1
		}
		return genvhost.New(s).Old().Handle(ctx, r)
	}
}

// monitoredFleet is a host of each kind.
func monitoredFleet(t *testing.T) (f *inprocess.Fleet, ours *genvhost.Host) {
	ours = genvhost.New(metered())
	withoutGenv := inprocess.Func(func(_ context.Context, r *inprocess.Request) int {
		if strings.Contains(r.Line, "genv-diagnosis") {
			return 0 // it has a shell
		}
		fmt.Fprintln(r.Stderr, "sudo: genv: command not found")
		return 1
	})
	f = genvtest.StartFleet(t,
		&inprocess.Server{Name: "ours", Handler: ours},
		&inprocess.Server{Name: "old", Handler: nvidiaSMI(genvhost.New(metered()).Old())},
		&inprocess.Server{Name: "bare", Handler: nvidiaSMI(withoutGenv)},
		&inprocess.Server{Name: "nosudo", Handler: nvidiaSMI(refusesSudo(metered()))},
		&inprocess.Server{Name: "down", Handler: ours},
	)
	require.NoError(t, f.Host("down").Inject(inprocess.Faults{Down: true}))
	return f, ours
}

func TestRemoteMonitor(t *testing.T) {
	f, ours := monitoredFleet(t)
	m := startMonitor(t, genvtest.Getenv(t), "remote", "monitor", "-F", f.SSHConfig(), "-H", "ours,old,bare,nosudo,down")
	text := m.wait([]string{
		`genv_is_installed{hostname="ours"} 1`, `genv_is_installed{hostname="old"} 1`, `genv_is_installed{hostname="bare"} 0`, `genv_is_installed{hostname="nosudo"} 1`,
		`genv_device_temperature{hostname="ours",index="0"} 63`,
		`genv_device_temperature{hostname="old",index="0"} 44`, // its login's nvidia-smi
		`genv_device_utilization{hostname="bare",index="0"} 50`,
		`genv_device_utilization{hostname="nosudo",index="0"} 50`,
		`genv_environment_processes_total{hostname="ours",eid="1667"} 1`,
		`genv_process_used_gpu_memory_bytes{hostname="old",pid="70",eid="1667",device="0"} 1048576000`,
		`genv_user_attached_devices_total{hostname="nosudo",username="alice"} 1`,
		`genv_processes_total{hostname="nosudo"} 1`,
	},
		`genv_is_installed{hostname="down"}`, `genv_device_temperature{hostname="ours",index="1"}`, // unknown
		`genv_environments_total{hostname="bare"}`, `genv_process_devices_total{hostname="nosudo"`, `genv_environment_processes_total{hostname="nosudo"`,
	)
	require.Equal(t, 17, strings.Count(text, "# TYPE genv_"))
	require.Equal(t, 250*time.Millisecond, ours.DeviceAge(), "half the interval")
	require.Regexp(t, `1 of 5 hosts failed:\n.{19}   unreachable \(1\)\n.{19}     down: `, m.said(), "dated")
	require.Contains(t, m.said(), "nosudo: processes whose environment is unknown: their series are left out")

	ours.Change(func(s *snapshot.Snapshot) { s.Environments, s.Processes, s.Devices[0].Attachments = nil, nil, nil })
	m.wait([]string{`genv_environments_total{hostname="ours"} 0`, `genv_processes_total{hostname="ours"} 0`, `genv_attached_devices_total{hostname="ours"} 0`},
		`genv_environment_attached_devices_total{hostname="ours"`, `genv_process_devices_total{hostname="ours"`, `genv_user_environments_total{hostname="ours"`)

	require.NoError(t, f.Host("ours").Inject(inprocess.Faults{Down: true}))
	ours.Behave(func(string) genvhost.Behavior { return genvhost.Behavior{Damage: genvhost.Hangup} })
	m.wait([]string{`genv_is_installed{hostname="old"} 1`}, `genv_is_installed{hostname="ours"}`, `genv_device_memory_total_bytes{hostname="ours"`)
	require.Equal(t, 1, strings.Count(m.said(), "nosudo: processes"), "said once:\n%s", m.said())
	require.Zero(t, m.end())
}

// TestMonitorEndsAtOnce: also while a host doesn't answer, and a client holds its connection.
func TestMonitorEndsAtOnce(t *testing.T) {
	asked := make(chan struct{}, 100)
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "silent", Handler: inprocess.Func(func(ctx context.Context, _ *inprocess.Request) int {
		asked <- struct{}{}
		<-ctx.Done()
		return 1
	})})
	m := startMonitor(t, genvtest.Getenv(t), "remote", "monitor", "-F", f.SSHConfig(), "-H", "silent")
	<-asked
	keeping := &http.Transport{}
	defer keeping.CloseIdleConnections()
	answer, err := (&http.Client{Transport: keeping}).Get(m.url)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	begun := time.Now()
	require.Zero(t, m.end())
	require.Less(t, time.Since(begun), 5*time.Second)
}

func TestRemoteMonitorStopsAtFailure(t *testing.T) {
	f, _ := monitoredFleet(t)
	genvtest.Run(t, "remote", "monitor", "-e", "-F", f.SSHConfig(), "-H", "down", "--address", "127.0.0.1", "--port", "0", "--config-dir", t.TempDir()+"/c").Exits(t, command.ExitNoneLeft, "1 of 1 host failed")
	genvtest.Run(t, "remote", "monitor", "-e", "-q", "-F", f.SSHConfig(), "-H", "ours,down", "--address", "127.0.0.1", "--port", "0", "--config-dir", t.TempDir()+"/c").Exits(t, command.ExitSomeFailed)
}

func TestWrongUseOfMonitor(t *testing.T) {
	for args, want := range map[string]string{
		"--port 65536": "--port 65536", "--port x": `"x"`, "--address gpu-01": `--address "gpu-01"`, "--interval 0": `--interval "0"`,
		"--address 192.0.2.77 --port 0": "192.0.2.77 is not an address of this machine", "--config-dir /a$b": `--config-dir "/a$b"`, "now": `"now"`,
	} {
		r := genvtest.Run(t, append([]string{"monitor"}, strings.Fields(args)...)...).Exits(t, command.ExitFailed, want)
		require.Equal(t, 1, strings.Count(r.Err, "\n"), "one line: %s", r.Err)
	}
}

// simulatedMachine is a host with real state files and the stand-in for nvidia-smi.
func simulatedMachine(t *testing.T, fault string) *testfleet.Machine {
	machine := proctest.Try(testfleet.NewMachine(t.TempDir(), gpus.H100s("gpu", 2), sshd.Build(t, "remote/testfleet/gpus/nvidia-smi"))).OK(t)
	t.Cleanup(func() { require.NoError(t, machine.Close()) })
	machine.Fault = fault
	for _, v := range machine.Variables() { // nvidia-smi has those of this process
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	return machine
}

// machineInUse has an environment on device 1, with a job in it.
func machineInUse(t *testing.T) (*testfleet.Machine, *testfleet.Env) {
	machine := simulatedMachine(t, "")
	env := proctest.Try(machine.Activate(testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{1}})).OK(t)
	proctest.Try(machine.StartJob(testfleet.Job{User: "alice", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 1, MiB: 1000}}})).OK(t)
	return machine, env
}

// TestMonitorOfThisHost: with real state files, processes and the stand-in for nvidia-smi.
func TestMonitorOfThisHost(t *testing.T) {
	machine, env := machineInUse(t)
	m := startMonitor(t, environ(machine.Environ()...), "monitor")
	m.wait([]string{
		"genv_is_installed 1", "genv_environments_total 1", "genv_processes_total 1", "genv_users_total 1",
		`genv_device_utilization{index="1"} 97`, `genv_device_temperature{index="1"} 63`, `genv_device_memory_used_bytes{index="1"} 1048576000`,
		fmt.Sprintf("genv_environment_processes_total{eid=%q} 1", env.EID), `genv_device_memory_total_bytes{index="0"} 85520809984`,
	})
	require.Regexp(t, fmt.Sprintf(`(?m)^genv_process_used_gpu_memory_bytes{pid="\d+",eid=%q,device="1"} 1048576000$`, env.EID), m.get())
	at := proctest.Try(url.Parse(m.url)).OK(t)
	require.ErrorIs(t, proctest.Try(net.Dial("tcp", "127.0.0.2:"+at.Port())).Err, syscall.ECONNREFUSED, "it listens on 127.0.0.1 alone")
	require.NoError(t, machine.Close()) // ends the job and the shell
	m.wait([]string{"genv_environments_total 0", "genv_processes_total 0", "genv_users_total 0"}, "genv_environment_", "genv_process_", "genv_user_")
	require.Zero(t, m.end())
}

// TestMonitorOfASickGPU: nvidia-smi hangs, and the monitor still ends at once.
func TestMonitorOfASickGPU(t *testing.T) {
	machine := simulatedMachine(t, gpus.FaultHang)
	m := startMonitor(t, environ(machine.Environ()...), "monitor")
	require.Empty(t, m.get(), "nothing is known")
	begun := time.Now()
	require.Zero(t, m.end())
	require.Less(t, time.Since(begun), 5*time.Second)

	t.Setenv(gpus.EnvFault, gpus.FaultMismatch)
	m = startMonitor(t, environ(machine.Environ()...), "monitor")
	text := m.wait([]string{"genv_is_installed 1"})
	require.NotContains(t, text, "\ngenv_device")
	require.NotContains(t, text, "\ngenv_processes_total")
	require.Equal(t, 1, strings.Count(m.said(), "the NVIDIA driver was updated"), m.said())
}

// TestRemoteMonitorOfRealHosts: with our genv and 1.4.3, for the administrator and for a user without rights.
func TestRemoteMonitorOfRealHosts(t *testing.T) {
	f, envs := mixedFleet(t)
	for _, h := range f.Hosts() {
		genvtest.StartJob(t, h, testfleet.Job{User: "alice", Env: []string{envs[h.Name].Var()}, Uses: []testfleet.Use{{Device: 0, MiB: 1000}}})
	}
	everybody := []string{
		`genv_is_installed{hostname="ours"} 1`, `genv_is_installed{hostname="old"} 1`,
		`genv_device_temperature{hostname="ours",index="0"} 63`, `genv_device_utilization{hostname="old",index="0"} 97`,
		`genv_users_total{hostname="ours"} 1`, `genv_user_attached_devices_total{hostname="old",username="alice"} 1`, `genv_processes_total{hostname="old"} 1`,
	}
	admin := startMonitor(t, genvtest.Getenv(t), "remote", "monitor", "-F", f.SSHConfig(), "-H", "ours,old")
	admin.wait(append([]string{
		fmt.Sprintf(`genv_environment_processes_total{hostname="ours",eid=%q} 1`, envs["ours"].EID),
		fmt.Sprintf(`genv_environment_processes_total{hostname="old",eid=%q} 1`, envs["old"].EID),
	}, everybody...))
	require.Zero(t, admin.end())

	called := callsOfSudo(t, f)
	bob := startMonitor(t, genvtest.Getenv(t), "remote", "monitor", "-F", f.SSHConfig(), "-H", "ours,old", "-l", "bob")
	bob.wait(everybody, "genv_process_devices_total{", "genv_environment_processes_total{", "genv_user_processes_total{")
	before := called()
	require.NotEmpty(t, before)
	time.Sleep(5 * time.Second) // ten collections
	require.Less(t, len(called()), 3*len(before), "sudo, which logs each refusal, is not called by each collection")
	require.Contains(t, bob.said(), "ours: processes whose environment is unknown")
}
