package user_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestReplayEnforce: on the host on which 1.4.3 was recorded, `genv enforce` says
// and does the same. The order is our own: detachments come first.
func TestReplayEnforce(t *testing.T) {
	genvtest.NeedsRoot(t)
	step := recording(t, "enforce.txt")[0]
	s := newStation(t)
	alices, bobs, outside := startJob(t, 1001, "GENV_ENVIRONMENT_ID=1667"), startJob(t, 1002, "GENV_ENVIRONMENT_ID=2020"), startJob(t, 1002)
	var toRecorded []string
	for recorded, pid := range map[string]snapshot.PID{"27940": alices, "27941": bobs, "27942": outside} {
		toRecorded = append(toRecorded, fmt.Sprintf("rocess %d ", pid), "rocess "+recorded+" ")
	}
	s.apps(appOf(alices, 0, 1000), appOf(alices, 1, 1000), appOf(bobs, 3, 9000), appOf(outside, 4, 10))
	s.recordedBooks(t)

	r := s.me().with("GENV_AUDIT_LOG=off").run(words(step.command)...)
	require.Zero(t, r.Code, r.Err)
	got := linesOf(strings.NewReplacer(toRecorded...).Replace(r.Out), "")
	for i, line := range got { // behind the recorded line we name the user and the program
		got[i] = regexp.MustCompile(` \([^()]*\)$`).ReplaceAllString(line, "")
	}
	slices.Sort(got)
	want := slices.Sorted(slices.Values(step.lines))
	require.Equal(t, want, got, r.Err)
	require.Equal(t, genvtest.Result{Out: "0,\n1,1667\n2,\n3,2020\n"}, s.me().run("genv", "devices", "query", "--index", "0,1,2,3", "--query", "index", "eids"))
}

// recordedBooks are those of the recording: alice has the devices 0 and 1, bob
// 0 and 3, with a capacity.
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
	envs, err := snapshot.EncodeEnvironments([]snapshot.Environment{
		{EID: "1667", UID: 1001, Username: "alice", Creation: created, PIDs: []snapshot.PID{startSleeper(t, 1001)}},
		{EID: "2020", UID: 1002, Username: "bob", Creation: created, PIDs: []snapshot.PID{startSleeper(t, 1002)}},
	})
	require.NoError(t, err)
	document, err := snapshot.EncodeDevices(devices)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(s.state, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(s.state, "envs.json"), envs, 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(s.state, "devices.json"), document, 0o666))
}

func appOf(pid snapshot.PID, device int, usedMiB int64) gpus.App {
	return gpus.App{PID: int(pid), Device: device, UsedMiB: &usedMiB, Name: "job"}
}

// apps are all that nvidia-smi shows from now on.
func (s *station) apps(apps ...gpus.App) {
	s.t.Helper()
	host, err := gpus.Read(s.path("gpus.json"))
	require.NoError(s.t, err)
	host.Apps = apps
	require.NoError(s.t, host.Write(s.path("gpus.json")))
}

// startJob is a sleeper with variables of its own.
func startJob(t *testing.T, uid int, environ ...string) snapshot.PID {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "1000000")
	cmd.Dir, cmd.Env = "/", append([]string{"PATH=/usr/bin:/bin"}, environ...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return snapshot.PID(cmd.Process.Pid)
}
