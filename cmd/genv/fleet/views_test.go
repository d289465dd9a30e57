package fleet_test

import (
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func states(h *live.FleetHost) (list []gpus.State) {
	for i := range h.GPUs {
		list = append(list, h.GPUs[i].State)
	}
	return list
}

func TestRemoteWatch(t *testing.T) {
	f, ours := monitoredFleet(t)
	socket := filepath.Join(t.TempDir(), "s")
	run := genvtest.Begin(t, "remote", "watch", "-F", f.SSHConfig(), "-H", "ours,old,bare,nosudo,down", "--interval", "200ms", "--socket", socket)
	v := genvtest.View(t, socket)
	fleet := v.Wait("all answered", func(f *live.FleetState) bool { return f.Cycle > 0 && len(f.Failed) == 1 })
	require.False(t, fleet.Enforcing)
	require.False(t, fleet.DryRun, "it is none of enforcement")
	require.Empty(t, fleet.Findings)
	require.Empty(t, fleet.Notes)
	require.Equal(t, []gpus.State{gpus.Busy, gpus.Free}, states(&fleet.Hosts[0]))
	require.Equal(t, 63, *fleet.Hosts[0].GPUs[0].Temperature)
	require.Equal(t, 44, *fleet.Hosts[1].GPUs[0].Temperature, "genv 1.4.3 says nothing, and its nvidia-smi does")
	require.Equal(t, gpus.Busy, fleet.Hosts[3].GPUs[0].State, "it takes no sudo")
	require.Equal(t, remote.Unreachable, fleet.Hosts[4].Failure.Class)
	require.Equal(t, 100*time.Millisecond, ours.DeviceAge(), "half the interval")

	require.NoError(t, f.Host("ours").Inject(inprocess.Faults{Down: true}))
	ours.Behave(func(string) genvhost.Behavior { return genvhost.Behavior{Damage: genvhost.Hangup} })
	fleet = v.Wait("it is lost", func(f *live.FleetState) bool { return f.Hosts[0].Failure != nil })
	require.Equal(t, []gpus.State{gpus.Unknown, gpus.Unknown}, states(&fleet.Hosts[0]), "failed, and not free")
	require.NotZero(t, fleet.Hosts[0].Seen)
	require.NoError(t, f.Host("ours").Inject(inprocess.Faults{}))
	require.NoError(t, f.Host("down").Inject(inprocess.Faults{}))
	ours.Behave(func(string) genvhost.Behavior { return genvhost.Behavior{} })
	v.Wait("all are back", func(f *live.FleetState) bool { return len(f.Failed) == 0 })
	require.Equal(t, command.ExitOK, run.End())
	require.Contains(t, run.Err.String(), "Live state of 5 hosts, every 200ms: "+socket)
	said := regexp.MustCompile(`(?m)^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d `).ReplaceAllString(run.Err.String(), "")
	require.Contains(t, said, "1 of 5 hosts failed:\n  unreachable (1)\n    down: ")
	require.Regexp(t, `(?m)^Lost: ours: `, said)
	require.Regexp(t, `(?m)^Back after .*; all hosts answer$`, said)
	require.Empty(t, run.Out.String())
	require.NoFileExists(t, socket)
}

// TestEnforceIsSeen: what it finds and decides; and the devices are measured while somebody looks.
func TestEnforceIsSeen(t *testing.T) {
	s := metered()
	s.Processes[0].EID, s.Processes[0].Username = "", "alice"
	h := genvhost.New(s)
	h.KeepTimes()
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: h})
	socket := filepath.Join(t.TempDir(), "s")
	args := []string{"remote", "enforce", "-F", f.SSHConfig(), "-H", "a", "--interval", "200ms", "--non-env-processes", "--dry-run", "--max-devices-per-user", "3"}
	run := genvtest.Begin(t, append(args, "--socket", socket)...)
	answered := 0
	genvtest.Eventually(t, "it asks", func() bool { answered += len(h.TakeAnswered()); return answered > 2 })
	require.Zero(t, h.DeviceAge(), "there is no viewer")
	v := genvtest.View(t, socket)
	fleet := v.Wait("the first cycle", func(f *live.FleetState) bool { return f.Took > 0 })
	require.True(t, fleet.Enforcing)
	require.True(t, fleet.DryRun)
	require.Len(t, fleet.Findings, 1)
	require.EqualValues(t, "dry-run", fleet.Findings[0].Decision)
	require.Equal(t, []live.FleetUser{{Name: "alice", Hosts: 1, Attached: 1, Used: 1, Memory: 1000 << 20, Cap: new(3), Findings: 1}}, fleet.Users)
	genvtest.Eventually(t, "somebody looks", func() bool { return h.DeviceAge() == 100*time.Millisecond })

	other, err := exec.Command(genvtest.Program(t), append(args, "--socket", socket)...).CombinedOutput()
	require.ErrorContains(t, err, "exit status 1", string(other))
	require.Regexp(t, `another process has this socket: PID \d+`, string(other))
	run.End()
	once := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "a", "--interval", "0", "--socket", socket)
	require.Contains(t, once.Err, "--socket needs a loop")
}

// TestTheCommandsOfMigrating: those of docs/migrating.md for the jump host, on a fleet of which one host has moved.
func TestTheCommandsOfMigrating(t *testing.T) {
	text := genvtest.Read(t, "../../../docs/migrating.md")
	hosts := sshd.Named("gpu-01", "gpu-02")
	hosts[1].Rights = sshd.MaySudo143
	f := sshd.Start(t, sshd.Options{Hosts: hosts, Genv: genvtest.Program(t)})
	for _, h := range f.Hosts() {
		genvtest.Activate(t, h, testfleet.Environment{User: "alice", Config: snapshot.EnvConfig{Name: "my-env"}, Devices: []snapshot.DeviceIndex{0}})
	}
	var printed []string
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", "")) {
		words := strings.Fields(strings.ReplaceAll(line, "'", ""))
		if !strings.HasPrefix(line, "   ") || len(words) < 2 || words[0] != "genv" || words[1] != "remote" {
			continue
		}
		r := genvtest.Run(t, append([]string{"remote", "-F", f.SSHConfig()}, words[2:]...)...)
		require.Zero(t, r.Code, "%s%s", line, r.Err)
		printed = append(printed, r.Out)
	}
	require.Len(t, printed, 5)
	require.Contains(t, printed[0], "Total 16 devices with 14 available on 2 hosts")
	require.Contains(t, printed[1], "Total 2 environments on 2 hosts")
	require.Equal(t, 2, strings.Count(printed[2], "\n"), printed[2])
	require.Empty(t, printed[3], "alice keeps the rules")
	require.Contains(t, printed[4], `"via":{"gpu-01":"stream","gpu-02":"commands"}`)
}

// TestWebPage: a controller's hosts in a browser, with the documents and metrics.
func TestWebPage(t *testing.T) {
	f, _ := monitoredFleet(t)
	run := genvtest.Begin(t, "remote", "watch", "-F", f.SSHConfig(), "-H", "ours,old,bare,nosudo,down", "--interval", "200ms", "--socket", "off", "--web", "127.0.0.1:0")
	var site string
	genvtest.Eventually(t, "it says where the page is", func() bool {
		site = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(run.Err.String())
		return site != ""
	})
	client := &http.Client{Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	ask := func(method, path, host string) (int, string) {
		request := proctest.Try(http.NewRequestWithContext(t.Context(), method, site+path, http.NoBody)).OK(t)
		request.Host = host
		response, err := client.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		body := proctest.Try(io.ReadAll(response.Body)).OK(t)
		return response.StatusCode, string(body)
	}
	genvtest.Eventually(t, "the first cycle", func() bool {
		status, _ := ask(http.MethodGet, "/-/ready", "")
		return status == http.StatusOK
	})
	_, page := ask(http.MethodGet, "/", "")
	for _, text := range []string{`href="/h/ours"`, `href="/h/down"`, "unreachable", "check that the host is up", "this controller only watches"} {
		require.True(t, strings.Contains(page, text), "%s is missing", text)
	}
	for path, text := range map[string]string{"/h/ours": "63 °C", "/h/down": "Next step", "/api/v1/gpus": "genv.remote.gpus/1", "/metrics": `genv_host_up{host="down"} 0`, "/sd": "ours", "/-/healthy": "healthy"} {
		status, body := ask(http.MethodGet, path, "localhost:1")
		require.Equal(t, http.StatusOK, status, path)
		require.True(t, strings.Contains(body, text), "%s: %s is missing", path, text)
		status, _ = ask(http.MethodGet, path, "evil.example")
		require.Equal(t, http.StatusMisdirectedRequest, status, path)
		status, _ = ask(http.MethodPost, path, "")
		require.Equal(t, http.StatusMethodNotAllowed, status, path)
	}
	status, _ := ask(http.MethodPost, "/api/v1/actions", "")
	require.Equal(t, http.StatusMethodNotAllowed, status)
	require.Equal(t, command.ExitSomeFailed, run.End())
}
