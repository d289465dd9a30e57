package local_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

var (
	morning = snapshot.DateOf(time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC))
	evening = snapshot.DateOf(time.Date(2026, 11, 20, 20, 0, 0, 0, time.UTC))
)

func environment(eid snapshot.EnvID, uid snapshot.UID, name snapshot.Username) snapshot.Environment {
	return snapshot.Environment{EID: eid, UID: uid, Username: name, Creation: morning, PIDs: []snapshot.PID{snapshot.PID(os.Getpid())}}
}

func device(index snapshot.DeviceIndex, eids ...snapshot.EnvID) snapshot.Device {
	d := snapshot.Device{Index: index, TotalMemory: snapshot.MiB(100), Attachments: []snapshot.Attachment{}}
	for _, eid := range eids {
		d.Attachments = append(d.Attachments, snapshot.Attachment{EID: eid, Time: evening})
	}
	return d
}

func TestDetachments(t *testing.T) {
	raz := environment("7", 1001, "raz")
	newer := raz
	newer.Creation = evening
	stolen := raz
	stolen.UID = 1002
	type envs = []snapshot.Environment
	untouched := []snapshot.Device{device(0, "7", "8"), device(1, "7")}
	without := []snapshot.Device{device(0, "8"), device(1, "7")}
	detached := func(user string) string { return "Detaching environment 7 of user " + user + " from device 0" }
	const reason = "environment 7 was registered for another user since it was judged"
	for name, r := range map[string]struct {
		envs   envs
		judged snapshot.Environment
		device snapshot.DeviceIndex
		status order.OutcomeStatus
		reason string
		line   string
		left   []snapshot.Device
	}{
		"it is attached": {envs{raz}, raz, 0, order.StatusDetached, "", detached("raz"), without},
		"its user has no name": {
			envs{raz}, environment("7", 1001, ""), 0, order.StatusDetached, "", detached("1001"), without,
		},
		"its user has a name that would ring": {
			envs{raz}, environment("7", 1001, "raz\a"), 0, order.StatusDetached, "", detached(`"raz?"`), without,
		},
		"only the attachment is left of it": {nil, raz, 0, order.StatusDetached, "", detached("raz"), without},
		"it is not attached there": {
			envs{raz}, environment("9", 1001, "raz"), 0, order.StatusNotAttached, "", "", untouched,
		},
		"there is no such device": {envs{raz}, raz, 2, order.StatusNotAttached, "", "", untouched},
		"its date was changed": {
			envs{newer},
			raz, 1, order.StatusDetached, "",
			"Detaching environment 7 of user raz from device 1",
			[]snapshot.Device{device(0, "7", "8"), device(1)},
		},
		"the id was given to another user": {envs{stolen}, raz, 1, order.StatusChanged, reason, "", untouched},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(local.ExecutorOptions{})
			s.stateFiles.content = state.Files{Environments: r.envs, Devices: []snapshot.Device{device(0, "7", "8"), device(1, "7")}}
			want := order.Outcome{EID: r.judged.EID, Device: r.device, Status: r.status, Reason: r.reason}
			got := s.x.Execute(context.Background(), detaching(r.judged, r.device))
			require.Equal(t, []order.Outcome{want}, got)
			require.Equal(t, r.left, s.stateFiles.content.Devices)
			require.Equal(t, r.line, strings.Join(s.lines, "\n"))
		})
	}
}

func detaching(e snapshot.Environment, devices ...snapshot.DeviceIndex) order.Order {
	var o order.Order
	for _, d := range devices {
		o.Detach = append(o.Detach, order.Detachment{Device: d, Environment: e})
	}
	return o
}

// TestDetachOnDisk does it with the real ones, which another may change in between.
func TestDetachOnDisk(t *testing.T) {
	store := disk.New(t.TempDir(), disk.Config{})
	mine := environment("7", snapshot.UID(os.Getuid()), "raz")
	require.NoError(t, store.Update(context.Background(), func(b *state.Files) error {
		b.Environments = []snapshot.Environment{mine}
		b.Devices = []snapshot.Device{device(0, "7"), device(1, "7"), device(2, "7")}
		return nil
	}))
	x := local.New(&machine{}, store, local.ExecutorOptions{})
	got := x.Execute(context.Background(), detaching(mine, 0, 2, 2))
	require.Equal(t, []order.Outcome{
		{EID: "7", Device: 0, Status: order.StatusDetached},
		{EID: "7", Device: 2, Status: order.StatusDetached},
		{EID: "7", Device: 2, Status: order.StatusNotAttached},
	}, got)
	stateFiles, err := store.Read(context.Background())
	require.NoError(t, err)
	require.Equal(t, []snapshot.DeviceIndex{1}, stateFiles.AttachedTo("7"))
}

// TestFailedDetachmentSparesEnvironment: its process would only start
// again on the device that it kept. Others are not held up.
func TestFailedDetachmentSparesEnvironment(t *testing.T) {
	mine, others := ready(t, "gentle", in("7")), ready(t, "gentle", in("8"))
	o := detaching(environment("7", 1001, "raz"), 0)
	o.Terminate = []order.Termination{{Process: mine.judged("7", 0)}, {Process: others.judged("8", 0)}}
	s := newScene(local.ExecutorOptions{Grace: oneGrace}, mine.judged("7", 0), others.judged("8", 0))
	s.stateFiles.err = errors.New("state is corrupt")
	got := s.x.Execute(context.Background(), o)
	require.Equal(t, order.Outcome{EID: "7", Status: order.StatusFailed, Reason: "the attachment was not removed: state is corrupt"}, got[0])
	require.Equal(t, order.Outcome{
		PID: mine.pid(), EID: "7", Status: order.StatusFailed,
		Reason: "not begun, since its environment kept GPU 0: the attachment was not removed: state is corrupt",
	}, got[1])
	require.Equal(t, order.StatusTerminated, got[2].Status)
	require.Len(t, s.lines, 1)
	mine.answers()
}

// TestAFullDiskSparesNoProcess: what must end doesn't wait until the detachment can be written. An environment of
// another user by now keeps what it keeps.
func TestAFullDiskSparesNoProcess(t *testing.T) {
	mine, others := ready(t, "gentle", in("7")), ready(t, "gentle", in("8"))
	o := detaching(environment("7", 1001, "raz"), 0)
	o.Detach = append(o.Detach, detaching(environment("8", 1001, "raz"), 0).Detach...)
	judged := others.judged("8", 0)
	judged.Start = 0
	o.Terminate = []order.Termination{{Process: mine.judged("7", 0)}, {Process: judged}}
	s := newScene(local.ExecutorOptions{Grace: oneGrace}, mine.judged("7", 0), judged)
	s.stateFiles.content = state.Files{
		Environments: []snapshot.Environment{environment("7", 1001, "raz"), environment("8", 1002, "eve")},
		Devices:      []snapshot.Device{device(0, "7", "8")},
	}
	s.stateFiles.full = unix.ENOSPC
	got := s.x.Execute(context.Background(), o)
	require.Equal(t, order.Outcome{EID: "7", Status: order.StatusFailed, Reason: "the attachment was not removed: no space left on device"}, got[0])
	require.Equal(t, order.StatusFailed, got[1].Status)
	require.Equal(t, order.StatusTerminated, got[2].Status, got[2].Reason)
	require.Equal(t, order.StatusChanged, got[3].Status)
	require.Len(t, s.lines, 1)
	others.answers()
}

// TestChangedOwnerDoesNotSpareJudgedProcess: every user may change the owner of
// an environment, but not when a process started.
func TestChangedOwnerDoesNotSpareJudgedProcess(t *testing.T) {
	for start, want := range map[bool]order.OutcomeStatus{true: order.StatusTerminated, false: order.StatusChanged} {
		c := ready(t, "gentle", in("7"))
		judged := c.judged("7", 0)
		if !start {
			judged.Start = 0
		}
		o := detaching(environment("7", 1001, "raz"), 0)
		o.Terminate = []order.Termination{{Process: judged}}
		s := newScene(local.ExecutorOptions{Grace: oneGrace}, c.judged("7", 0))
		s.stateFiles.content = state.Files{Environments: []snapshot.Environment{environment("7", 1002, "eve")}, Devices: []snapshot.Device{device(0, "7")}}
		got := s.x.Execute(context.Background(), o)
		require.Equal(t, order.StatusChanged, got[0].Status)
		require.Equal(t, want, got[1].Status, got[1].Reason)
	}
}

// TestDetachBeforeTerminate: no process can start again on a device that is being taken away.
func TestDetachBeforeTerminate(t *testing.T) {
	c := ready(t, "gentle", in("7"))
	o := detaching(environment("7", 1001, "raz"), 0)
	o.Terminate = []order.Termination{{Process: c.judged("7", 0)}}
	s := newScene(local.ExecutorOptions{Grace: oneGrace}, c.judged("7", 0))
	s.stateFiles.content.Devices = []snapshot.Device{device(0, "7")}
	s.machine.then = func() { require.Len(t, s.lines, 1) }
	got := s.x.Execute(context.Background(), o)
	require.Equal(t, order.StatusDetached, got[0].Status)
	require.Equal(t, order.StatusTerminated, got[1].Status)
	require.Len(t, s.lines, 2)
}

func TestDetachWithEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := newScene(local.ExecutorOptions{})
	s.stateFiles.content.Devices = []snapshot.Device{device(0, "7")}
	got := s.x.Execute(ctx, detaching(environment("7", 1001, "raz"), 0))
	require.Equal(t, order.StatusFailed, got[0].Status)
	require.Empty(t, s.lines)
}

func TestEmptyOrder(t *testing.T) {
	s := newScene(local.ExecutorOptions{Grace: oneGrace})
	s.stateFiles.err = errors.New("unexpected update")
	require.Empty(t, s.x.Execute(context.Background(), order.Order{}))
	require.Zero(t, s.machine.asked)
}
