package enforcement_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// TestWhatAFleetAllows: root's service on a host says what is allowed, and the cycle after too much warns on terminals.
func TestWhatAFleetAllows(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", Rights: sshd.MaySudo}, {Name: "gpu-02"}}, Genv: genvtest.Program(t)})
	root := serveOn(t, f)
	policy := policyFile(t, "defaults: {max-devices-per-user: 2, warn: {for: 1h}}\noverrides: [{users: [root], set: {max-devices-per-user: 3}}]\n")
	socket := filepath.Join(t.TempDir(), "s")
	daemon := startDaemon(t, []string{"GENV_SOCKET=" + socket}, "-F", f.SSHConfig(), "-H", "gpu-01,gpu-02", "--interval", "1", "--policy", policy, "--state-dir", t.TempDir())
	go daemon.drain()
	require.Eventually(t, func() bool {
		own, err := root.Allowance(t.Context())
		return err == nil && own != nil && slices.Contains(own.Rules, service.Rule{Key: "max-devices-per-user", Value: "2"}) && !own.OneHost && own.By != ""
	}, time.Minute, 50*time.Millisecond)

	screen, text := logIn(t, "alice"), ""
	began := time.Now()
	genvtest.Activate(t, f.Host("gpu-02"), testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0, 1, 2}})
	for !strings.Contains(text, "User alice has 3 GPUs, and may have 2.") {
		require.Less(t, time.Since(began), time.Minute, text)
		text += screen.text(t)
	}
	t.Logf("alice read it after %s, with an interval of 1s", time.Since(began).Round(10*time.Millisecond))
	require.Contains(t, text, "Unless this changes, in 1h")

	explain := exec.Command(genvtest.Program(t), "policy", "explain", "--policy", policy, "--user", "alice", "--host", "gpu-02", "--format", "csv")
	config := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(config, "config.yaml"), []byte("enforce: {socket: "+socket+"}\n"), 0o600))
	explain.Env = append(os.Environ(), "GENV_SOCKET=", "GENV_CONFIG_DIR="+config)
	r := genvtest.Exec(t, explain)
	require.Regexp(t, `now max-devices-per-user,"3 GPUs of 2 GPUs; 3 GPUs on gpu-02 \(GPU 0,1,2\); first would go GPU \d on gpu-02 \(it is idle\)"`, r.Out, r.Err)

	shell := (&tampered{f, t}).shell("gpu-01", "alice")
	require.Regexp(t, `^No GPU was attached: .*max-devices-per-user allows you 2 GPUs, and with this it would be 4 GPUs: you have 0 GPUs on this host and 3 GPUs on gpu-02, as seen \d+s ago`,
		shell("genv activate --gpus 1"), "who asks on a host for the first time is told about")
	require.Contains(t, shell("genv status"), "3 of 2 GPUs\n")
	require.Regexp(t, `max-devices-per-user +2 +genv remote enforce`, shell("genv policy explain"))
	require.Contains(t, shell("genv attach; echo exit $?"), "exit 1\n")
	require.Contains(t, (&tampered{f, t}).shell("gpu-01", "bob")("genv activate --gpus 2"), "Attached GPUs 0, 1 ")
}

// serveOn runs root's service on gpu-01, and returns how root asks it.
func serveOn(t *testing.T, f *sshd.Fleet) service.Client {
	serve := exec.Command("ssh", "-tt", "-F", f.SSHConfig(), "gpu-01", "sudo -n genv host serve")
	in := proctest.Try(serve.StdinPipe()).OK(t) // the terminal ends with it, and so does the service
	require.NoError(t, serve.Start())
	t.Cleanup(func() { _ = in.Close(); _ = serve.Process.Kill(); _ = serve.Wait() })
	root := service.Client{Path: filepath.Join(f.Host("gpu-01").Root(), "run", service.SocketName)}
	require.Eventually(t, func() bool {
		_, err := root.Status(t.Context())
		return err == nil
	}, time.Minute, 50*time.Millisecond)
	return root
}

// TestWhatAFleetFreesForReservations: what is reserved is taken from others after the warning, and from its start on.
func TestWhatAFleetFreesForReservations(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", Rights: sshd.MaySudo}}, Genv: genvtest.Program(t)})
	host := f.Host("gpu-01")
	genvtest.Activate(t, host, testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0, 1}})
	root := serveOn(t, f)
	devices := genvtest.Devices(t, host)
	start := time.Now().Add(8 * time.Second)
	made, _, err := root.Reserve(t.Context(), snapshot.Reservation{ID: "a1", UID: 4242, GPUs: len(devices) - 1, From: start, Until: start.Add(time.Hour)})
	require.NoError(t, err)
	require.True(t, made.ByRoot)

	policy := policyFile(t, "defaults: {warn: {rules: {reservations: 3s}}}\nreservations: [{users: [alice], gpus: 1}]\n")
	daemon := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "1", "--policy", policy, "--state-dir", t.TempDir())
	warned := daemon.next(func(c enforcement.CycleDocument) bool { return len(c.Findings) > 0 })
	require.Equal(t, enforce.RuleReservations, warned.Findings[0].Rule)
	require.True(t, warned.Findings[0].Pending)
	daemon.next(func(c enforcement.CycleDocument) bool { return len(c.Orders) > 0 && len(c.Orders[0].Detach) == 1 })
	require.False(t, time.Now().Before(made.From), "not before it begins")
	daemon.next(func(c enforcement.CycleDocument) bool { return len(c.Findings) == 0 && c.Answered == 1 })
	go daemon.drain()
	list := proctest.Try(exec.Command("ssh", "-F", f.SSHConfig(), "gpu-01", "genv gpus").Output()).OK(t)
	require.Contains(t, string(list), "reserved by uid 4242 from ")
}
