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
			require.Equal(t, []order.Outcome{want}, s.x.Execute(context.Background(), detaching(r.judged, r.device)))
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
	require.Equal(t, order.StatusFailed, s.x.Execute(ctx, detaching(environment("7", 1001, "raz"), 0))[0].Status)
	require.Empty(t, s.lines)
}

func TestEmptyOrder(t *testing.T) {
	s := newScene(local.ExecutorOptions{Grace: oneGrace})
	s.stateFiles.err = errors.New("unexpected update")
	require.Empty(t, s.x.Execute(context.Background(), order.Order{}))
	require.Zero(t, s.machine.asked)
}

// TestDetachWhatWasUnused: the answer of the driver that was judged may be a minute old.
func TestDetachWhatWasUnused(t *testing.T) {
	raz := environment("7", 1001, "raz")
	user := func(uid snapshot.UID, p snapshot.Process) snapshot.Process {
		p.PID, p.UID, p.Usage = 4711, &uid, []snapshot.DeviceUsage{{Index: 1}}
		return p
	}
	elsewhere := user(1001, snapshot.Process{EID: "7"})
	elsewhere.Usage[0].Index = 0
	for name, tt := range map[string]struct {
		used   bool // it was judged to be in use
		apps   []snapshot.Process
		err    error
		status order.OutcomeStatus
	}{
		"still unused":                     {status: order.StatusDetached},
		"used by now":                      {apps: []snapshot.Process{user(1001, snapshot.Process{EID: "7"})}, status: order.StatusChanged},
		"by root's process in it":          {apps: []snapshot.Process{user(0, snapshot.Process{EID: "7"})}, status: order.StatusChanged},
		"by one in an unknown environment": {apps: []snapshot.Process{user(1001, snapshot.Process{EnvUnknown: true})}, status: order.StatusChanged},
		"by one without a device open":     {apps: []snapshot.Process{user(1001, snapshot.Process{EID: "7", NodeMissing: true})}, status: order.StatusDetached},
		"by a stranger's process in it":    {apps: []snapshot.Process{user(1002, snapshot.Process{EID: "7"})}, status: order.StatusDetached},
		"by an unknown one of a stranger":  {apps: []snapshot.Process{user(1002, snapshot.Process{EnvUnknown: true})}, status: order.StatusDetached},
		"by another environment":           {apps: []snapshot.Process{user(1001, snapshot.Process{EID: "8"})}, status: order.StatusDetached},
		"another GPU is used":              {apps: []snapshot.Process{elsewhere}, status: order.StatusDetached},
		"the driver is ill":                {err: errDriver, status: order.StatusFailed},
		"judged although it was used":      {used: true, err: errDriver, status: order.StatusDetached},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(local.ExecutorOptions{}, tt.apps...)
			s.machine.err = tt.err
			s.stateFiles.content = state.Files{Environments: []snapshot.Environment{raz}, Devices: []snapshot.Device{device(1, "7")}}
			o := order.Order{Detach: []order.Detachment{{Device: 1, Environment: raz, Unused: !tt.used}}}
			require.Equal(t, tt.status, s.x.Execute(t.Context(), o)[0].Status)
		})
	}
}

// An order names GPUs. An index that is another one by now costs neither a device nor a process.
func TestRenumberedGPUsAreLeftAlone(t *testing.T) {
	type uuids = map[snapshot.DeviceIndex]snapshot.GPUUUID
	for name, row := range map[string]struct {
		named, now uuids
		noted      snapshot.GPUUUID // by root, when it was attached
		detached   order.OutcomeStatus
		ended      order.OutcomeStatus
	}{
		"the same":                         {uuids{0: "a"}, uuids{0: "a", 1: "b"}, "a", order.StatusDetached, order.StatusTerminated},
		"no note of root":                  {uuids{0: "a"}, uuids{0: "a"}, "", order.StatusDetached, order.StatusTerminated},
		"an older controller":              {nil, uuids{0: "b"}, "a", order.StatusDetached, order.StatusTerminated},
		"another GPU":                      {uuids{0: "a"}, uuids{0: "b", 1: "a"}, "a", order.StatusChanged, order.StatusChanged},
		"it is gone":                       {uuids{0: "a"}, uuids{1: "b"}, "a", order.StatusChanged, order.StatusChanged},
		"another when it was attached":     {uuids{0: "a"}, uuids{0: "a"}, "b", order.StatusChanged, order.StatusTerminated},
		"another GPU that isn't concerned": {uuids{0: "a"}, uuids{0: "a", 1: "c"}, "a", order.StatusDetached, order.StatusTerminated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := ready(t, "gentle", in("8"))
			o := detaching(environment("7", 1001, "raz"), 0)
			o.Terminate, o.GPUs = []order.Termination{{Process: c.judged("8", 0)}}, row.named
			s := newScene(local.ExecutorOptions{Grace: oneGrace}, c.judged("8", 0))
			s.machine.gpus = row.now
			d := device(0, "7")
			d.UUID = row.noted
			s.stateFiles.content = state.Files{Environments: []snapshot.Environment{environment("7", 1001, "raz")}, Devices: []snapshot.Device{d}}
			got := s.x.Execute(t.Context(), o)
			require.Equal(t, row.detached, got[0].Status, got[0].Reason)
			require.Equal(t, row.ended, got[1].Status, got[1].Reason)
		})
	}
}

// Who attaches within the warning keeps the job: what was judged is older than that.
func TestWhatIsAttachedByNowIsNotEnded(t *testing.T) {
	attached := []snapshot.Device{device(0, "8"), device(1, "7"), device(2, "8")}
	for name, row := range map[string]struct {
		unattached []snapshot.DeviceIndex
		state      []snapshot.Device
		err        error
		want       order.OutcomeStatus
	}{
		"attached":                   {[]snapshot.DeviceIndex{0, 2}, attached, nil, order.StatusChanged},
		"one of them":                {[]snapshot.DeviceIndex{0, 1, 2}, attached, nil, order.StatusTerminated},
		"another environment is":     {[]snapshot.DeviceIndex{1}, attached, nil, order.StatusTerminated},
		"none":                       {[]snapshot.DeviceIndex{0}, nil, nil, order.StatusTerminated},
		"it ends for something else": {nil, attached, nil, order.StatusTerminated},
		"that can't be read":         {[]snapshot.DeviceIndex{0}, nil, errors.New("disk"), order.StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := ready(t, "gentle", in("8"))
			s := newScene(local.ExecutorOptions{Grace: oneGrace}, c.judged("8", 0, 1, 2))
			s.machine.state, s.machine.stateErr = row.state, row.err
			got := s.x.Execute(t.Context(), order.Order{Terminate: []order.Termination{{Process: c.judged("8", 0, 1, 2), Unattached: row.unattached}}})
			require.Equal(t, row.want, got[0].Status, got[0].Reason)
		})
	}
}
