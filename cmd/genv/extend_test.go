package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

// extendAs runs `genv extend` on a host as one of its users.
func extendAs(t *testing.T, h *sshd.Host, user string, args ...string) (said string, ok bool) {
	t.Helper()
	uid, err := sshd.UID(user)
	require.NoError(t, err)
	cmd := exec.Command(genvProgram(t), append([]string{"extend"}, args...)...)
	cmd.Env = append(h.Variables(), "PATH="+h.Bin()+":/usr/bin:/bin", "HOME=/")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// Over a real sshd and sudo: a user asks on the host, the controller grants it once and says
// so, also after it was killed and started again; the request of another user counts for
// nothing.
func TestExtendOverSSH(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvProgram(t)})
	h := f.Host("gpu-01")
	env, err := h.Activate(testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0}, At: time.Now().Add(-90 * time.Minute)})
	require.NoError(t, err)
	_, err = h.Activate(testfleet.Environment{User: "bob", Devices: []snapshot.DeviceIndex{1}, At: time.Now().Add(-90 * time.Minute)})
	require.NoError(t, err)
	eid, dir := string(env.EID), t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "log")
	require.NoError(t, os.WriteFile(policy, []byte("defaults: {max-duration: 1h, extend: 2h, warn: {for: 1d}}\ntell-users: true\n"), 0o600))
	args := []string{"-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "1", "--policy", policy, "--socket", "off", "--state-dir", filepath.Join(dir, "state"), "--audit-log", log}
	controller := startDaemon(t, nil, args...)
	hers := func(c enforcement.CycleDocument) bool {
		for i := range c.Findings {
			if c.Findings[i].User == "alice" {
				require.Equal(t, 2*time.Hour, c.Findings[i].Extend, "it is not used yet")
				return true
			}
		}
		return false
	}
	controller.next(hers)

	said, ok := extendAs(t, h, "bob", "2h", "--eid", eid)
	require.False(t, ok, "another's environment")
	require.Contains(t, said, "only that user and root may change it")
	for _, wrong := range [][]string{{"2h"}, {"--eid", eid}, {"2h", "3h", "--eid", eid}, {"1s", "--eid", eid}, {"-1h", "--eid", eid}, {"2h", "--eid", eid, "--index", "1"}, {"2h", "--eid", "none"}, {"9999d", "--eid", eid}} {
		said, ok = extendAs(t, h, "alice", wrong...)
		require.False(t, ok, said)
	}
	require.NoFileExists(t, filepath.Join(h.State, "extend"), "nothing was requested")

	said, ok = extendAs(t, h, "alice", "365d", "--eid", eid)
	require.True(t, ok, said)
	require.Contains(t, said, "Requested: 365d more for device 0 of environment "+eid+". It is not granted yet")
	cycle := controller.next(func(c enforcement.CycleDocument) bool { return !hers(c) })
	require.Len(t, cycle.Findings, 1, "bob's stays")

	controller.signal(os.Kill)
	controller.end()
	controller = startDaemon(t, nil, args...)
	controller.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
	said, ok = extendAs(t, h, "alice", "1h", "--eid", eid, "--index", "0")
	require.True(t, ok, said)
	recorded := func() string {
		r := genv(t, "remote", "history", "--audit-log", log, "--user", "alice")
		require.Zero(t, r.code, r.err)
		return r.out
	}
	controller.next(func(enforcement.CycleDocument) bool { return strings.Contains(recorded(), "not-extended") })
	require.Equal(t, 1, strings.Count(recorded(), "Extended: device 0 of environment "+eid+", by 2h instead of 365d"), recorded())
	require.Equal(t, 1, strings.Count(recorded(), "Not extended: device 0 of environment "+eid+": it was extended already, and that is possible once"), recorded())
	controller.signal(os.Interrupt)
	controller.end()
	data, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(data), "You asked for more time (genv extend). Extended: ", "she was told")
	require.Contains(t, string(data), "once: genv extend 2h --eid "+eid+" --index 0.", "and warned before")

	// `genv enforce` on the machine itself decides in the same way.
	said, ok = extendAs(t, h, "alice", "1h", "--eid", eid)
	require.True(t, ok, said)
	local := exec.Command(genvProgram(t), "enforce", "--interval", "0", "--policy", policy, "--state-dir", filepath.Join(dir, "local"))
	local.Env = append(h.Variables(), "PATH="+h.Bin()+":/usr/bin:/bin", "HOME="+dir, "GENV_SOCKET=off", "GENV_TELL=off", "GENV_CONFIG_DIR=off")
	out, err := local.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "Extended: device 0 of environment "+eid+", by 1h")
}
