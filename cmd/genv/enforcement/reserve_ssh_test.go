package enforcement_test

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// serveOn runs root's service on gpu-01, and returns how root asks it.
func serveOn(t *testing.T, f *sshd.Fleet) service.Client {
	serve := exec.Command("ssh", "-tt", "-F", f.SSHConfig(), "gpu-01", "sudo -n genv host serve")
	in, err := serve.StdinPipe() // the terminal ends with it, and so does the service
	require.NoError(t, err)
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
	_, err := host.Activate(testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0, 1}})
	require.NoError(t, err)
	root := serveOn(t, f)
	devices, err := host.Devices()
	require.NoError(t, err)
	start := time.Now().Add(8 * time.Second)
	made, err := root.Reserve(t.Context(), snapshot.Reservation{ID: "a1", UID: 4242, GPUs: len(devices) - 1, From: start, Until: start.Add(time.Hour)})
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
	list, err := exec.Command("ssh", "-F", f.SSHConfig(), "gpu-01", "genv gpus").Output()
	require.NoError(t, err)
	require.Contains(t, string(list), "reserved by uid 4242 from ")
}
