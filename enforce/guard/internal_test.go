package guard

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

const mallory = snapshot.UID(4666)

func number(n int) *int { return &n }

type facts struct {
	observation
	devices []hardware.BusDevice
	order   *Order
	exempt  []snapshot.UID
}

func (f *facts) access() access { return accessOf(&f.observation, f.devices, f.order, f.exempt) }

// accessFacts are a host with four devices: index 0 has minor 3, 1 has 2, 2 has 1, 3 has 0.
// Alice has devices 0 and 2 in two environments, Bob has device 1.
func accessFacts() facts {
	files := state.Files{
		Environments: []snapshot.Environment{{EID: "a", UID: alice}, {EID: "a2", UID: alice}, {EID: "b", UID: bob}},
		Devices:      []snapshot.Device{attached(0, "a"), attached(1, "b"), attached(2, "a2"), attached(3)},
	}
	return facts{
		observation: observation{files: files, proven: map[registration]bool{{EID: "a", UID: alice}: true, {EID: "a2", UID: alice}: true, {EID: "b", UID: bob}: true}},
		devices: []hardware.BusDevice{
			{Index: 0, UUID: "GPU-0", Minor: number(3)},
			{Index: 1, UUID: "GPU-1", Minor: number(2)},
			{Index: 2, UUID: "GPU-2", Minor: number(1)},
			{Index: 3, UUID: "GPU-3", Minor: number(0)},
		},
		order: &Order{},
	}
}

func attached(index snapshot.DeviceIndex, environments ...snapshot.EnvID) snapshot.Device {
	d := snapshot.Device{Index: index}
	for _, eid := range environments {
		d.Attachments = append(d.Attachments, snapshot.Attachment{EID: eid})
	}
	return d
}

// may says what is denied and what is allowed: a user by the index of a device.
type may struct {
	user   snapshot.UID
	device int
	open   bool
}

func TestWhoMayOpenWhat(t *testing.T) {
	minors := []int{3, 2, 1, 0}
	for name, tt := range map[string]struct {
		change func(*facts)
		want   []may
	}{
		"as attached": {func(*facts) {}, []may{
			{alice, 0, true}, {alice, 2, true}, {bob, 1, true}, {alice, 1, false}, {alice, 3, false}, {bob, 0, false}, {mallory, 0, false},
		}},
		"no process of hers": {func(f *facts) { f.proven = nil }, []may{{alice, 0, false}, {bob, 1, false}}},
		"one environment lives": {func(f *facts) { delete(f.proven, registration{EID: "a", UID: alice}) }, []may{
			{alice, 0, false}, {alice, 2, true}, {bob, 1, true},
		}},
		"over-subscribed": {func(f *facts) { f.files.Devices[0] = attached(0, "a", "b") }, []may{{alice, 0, true}, {bob, 0, true}, {mallory, 0, false}}},
		"the name says alice, the uid is Mallory's": {func(f *facts) {
			f.files.Environments = append(f.files.Environments, snapshot.Environment{EID: "m", UID: mallory, Username: "alice"})
			f.proven[registration{EID: "m", UID: mallory}] = true
			f.files.Devices[3] = attached(3, "m")
		}, []may{{alice, 3, false}, {mallory, 3, true}, {mallory, 0, false}}},
		"Mallory registers alice without a process of hers": {func(f *facts) {
			f.files.Environments = append(f.files.Environments, snapshot.Environment{EID: "m", UID: alice})
			f.files.Devices[3] = attached(3, "m")
		}, []may{{alice, 3, false}, {mallory, 3, false}, {alice, 0, true}}},
		"Mallory takes Alice's id, without a process": {func(f *facts) {
			f.files.Environments = append(f.files.Environments, snapshot.Environment{EID: "a", UID: mallory})
		}, []may{{mallory, 0, false}, {alice, 0, true}}},
		"Mallory takes Alice's id, as attaching the device would": {func(f *facts) {
			f.files.Environments = append(f.files.Environments, snapshot.Environment{EID: "a", UID: mallory})
			f.proven[registration{EID: "a", UID: mallory}] = true
		}, []may{{mallory, 0, true}, {alice, 0, true}, {mallory, 2, false}}},
		"the files are of before a renumbering": {func(f *facts) {
			f.files.Devices[0].UUID, f.files.Devices[1].UUID, f.files.Devices[2].UUID = "GPU-1", "GPU-9", "GPU-0"
		}, []may{{alice, 1, true}, {alice, 0, true}, {alice, 2, false}, {bob, 1, false}}},
		"an attachment of no environment": {func(f *facts) { f.files.Devices[3] = attached(3, "x") }, []may{{alice, 3, false}, {bob, 3, false}}},
		"a device that the host doesn't have": {func(f *facts) {
			f.files.Devices = append(f.files.Devices, attached(9, "b"))
		}, []may{{bob, 1, true}, {bob, 0, false}}},
		"exempt user":   {func(f *facts) { f.exempt = []snapshot.UID{mallory} }, []may{{mallory, 0, true}, {mallory, 3, true}, {bob, 0, false}}},
		"nothing there": {func(f *facts) { f.files = state.Files{} }, []may{{alice, 0, false}, {bob, 1, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := accessFacts()
			tt.change(&f)
			p := f.access()
			require.Equal(t, MinorsOf(0, 1, 2, 3), p.Guarded)
			for _, m := range tt.want {
				require.Equal(t, m.open, p.Allowed[m.user].Has(minors[m.device]), "uid %d, device %d", m.user, m.device)
			}
		})
	}
}

func TestWhatIsNotGuarded(t *testing.T) {
	f := accessFacts()
	f.devices = []hardware.BusDevice{
		{Index: 0, UUID: "GPU-0", Minor: number(3)},
		{Index: 1, UUID: "GPU-1"},
		{Index: 2, UUID: "GPU-2", Minor: number(300)},
		{Index: 3, UUID: "GPU-3", Minor: number(0)},
		{Index: 4, UUID: "GPU-4", Minor: number(4)},
		{Index: 5, Minor: number(255)},
	}
	f.order = &Order{ExemptDevices: []snapshot.DeviceIndex{3, 4}, ExemptUUIDs: []snapshot.GPUUUID{"GPU-4"}}
	p := f.access()
	require.Equal(t, MinorsOf(3), p.Guarded)
	why := map[snapshot.DeviceIndex]string{}
	for _, d := range p.Devices {
		require.Equal(t, d.Guarded, d.Why == "", "a reason for each that isn't: %+v", d)
		why[d.Index] = d.Why
	}
	require.Equal(t, map[snapshot.DeviceIndex]string{
		0: "", 1: "the number of its device node is unknown", 2: "its device node has number 300, which no GPU of this driver has",
		3: "it is exempt", 4: "it is exempt", 5: "its device node has number 255, which no GPU of this driver has",
	}, why)
	require.Equal(t, MinorsOf(3), p.Allowed[alice])
	require.NotContains(t, p.Allowed, bob, "device 1 is open to all")
}

func TestUsersWhoAreNeverDeniedTakeNoRoom(t *testing.T) {
	f := accessFacts()
	f.files.Environments = []snapshot.Environment{{EID: "a", UID: 0}, {EID: "b", UID: 999}, {EID: "a2", UID: 1000}}
	f.proven = map[registration]bool{{EID: "a", UID: 0}: true, {EID: "b", UID: 999}: true, {EID: "a2", UID: 1000}: true}
	require.Equal(t, map[snapshot.UID]Minors{1000: MinorsOf(1)}, f.access().Allowed)
	f.order.FirstUID = 500
	require.Contains(t, f.access().Allowed, snapshot.UID(999))
}

func TestWithKeepsWhatWasAllowed(t *testing.T) {
	f := accessFacts()
	p := f.access().with(map[snapshot.UID]Minors{alice: MinorsOf(0), mallory: MinorsOf(2)})
	require.Equal(t, map[snapshot.UID]Minors{alice: MinorsOf(0, 1, 3), bob: MinorsOf(2), mallory: MinorsOf(2)}, p.Allowed)
}

func TestExemptUsersAndDevices(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.give(Enforce, time.Minute, func(o *Order) {
		o.ExemptUsers, o.ExemptDevices = []snapshot.Username{"bob", "gone"}, []snapshot.DeviceIndex{2}
	})
	h.keep(h.keeper())
	h.soon("the first denial", h.mayNot(alice, 0))
	require.True(t, h.pins.may(bob, 3))
	require.True(t, h.pins.may(alice, 1), "device 2 is exempt")
	require.Equal(t, []AllowedUser{{UID: bob, Devices: []snapshot.DeviceIndex{0, 1, 3}, Exempt: true}}, h.says(Enforce).Users)
	h.soon("the user who doesn't exist is said", func() bool { return len(h.status().Problems) == 1 })

	h.give(Enforce, time.Minute, func(o *Order) { o.ExemptUsers = []snapshot.Username{"unknown"} })
	h.says(Watch)
	h.soon("why it only watches", func() bool { return strings.Contains(h.status().Reason, "the directory doesn't answer") })
	require.True(t, h.pins.may(alice, 3), "she may be the exempt one")
	h.give(Enforce, time.Minute, func(o *Order) { o.FirstUID = bob })
	h.soon("Bob is denied", h.mayNot(bob, 0))
	require.True(t, h.pins.may(alice, 3), "her uid is below the first one")
}

// count is how many opens a list has.
func count(l Denials) (n uint64) {
	for i := range l.Denials {
		n += l.Denials[i].Count
	}
	return n
}

func TestDenialsAreKept(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.give(Enforce, time.Minute)
	etc := h.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(etc, "passwd"), []byte("bob:x:4002:1::/:/bin/sh\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(etc, "subuid"), []byte("bob:100000:10\n"), 0o644))
	k := h.keeper()
	k.Accounts = &proc.Accounts{Etc: etc}
	require.Equal(t, bob, k.Accounts.Resolve(t.Context(), 100007))
	stop := h.keep(k)
	h.soon("a denial", h.mayNot(bob, 0))
	h.says(Enforce)
	for _, uid := range []snapshot.UID{bob, bob, 100007} { // a subordinate one
		h.events <- DeviceOpen{Kind: Denied, UID: uid, PID: snapshot.PID(os.Getpid()), Minor: 3}
	}
	h.events <- DeviceOpen{Kind: Opened, UID: bob, Minor: 3}
	h.events <- DeviceOpen{Kind: WouldDeny, UID: bob, Minor: 0}
	h.soon("the list", func() bool { l, err := ReadDenials(h.run); return err == nil && count(l) == 4 })
	l := proctest.Try(ReadDenials(h.run)).OK(t)
	require.Len(t, l.Denials, 2)
	require.EqualValues(t, 3, l.Denials[0].Count)
	require.Equal(t, snapshot.DeviceIndex(0), *l.Denials[0].Index, "the index, not the minor")
	require.Equal(t, snapshot.GPUUUID("GPU-0"), l.Denials[0].UUID)
	require.NotEmpty(t, l.Denials[0].Name)
	require.True(t, l.Denials[0].Subordinate && !l.Denials[1].Subordinate)
	require.False(t, l.Denials[1].Denied)
	h.soon("both are passed on", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.denied) == 2 })
	stop()
	h.keep(h.keeper())
	h.soon("another Keeper", func() bool { h.pins.mu.Lock(); defer h.pins.mu.Unlock(); return h.owner != nil })
	h.events <- DeviceOpen{Kind: Denied, UID: alice, Minor: 3}
	h.soon("the list goes on", func() bool { l, err := ReadDenials(h.run); return err == nil && count(l) == 5 })
}

// What was denied right before the end is in the list when the keeper has ended.
func TestDenialsOfTheLastMoment(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, stop := h.deny(time.Minute)
	h.events <- DeviceOpen{Kind: Denied, UID: bob, PID: 41, Minor: 3}
	h.soon("it is passed on", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.denied) == 1 })
	stop()
	require.EqualValues(t, 1, count(proctest.Try(ReadDenials(h.run)).OK(t)))
}

// TestOpensAreReported: those that were not denied, for those who wait for a reason to look.
func TestOpensAreReported(t *testing.T) {
	h := newHost(t)
	h.write(map[snapshot.UID][]snapshot.DeviceIndex{alice: {0}})
	require.NoError(t, os.MkdirAll(h.run, 0o755))
	r := watch.NewOpenLogReader(h.run)
	h.deny(time.Minute)
	h.events <- DeviceOpen{Kind: Denied, UID: bob, PID: 41, Minor: 3}
	h.events <- DeviceOpen{Kind: Opened, UID: 0, PID: 0, Minor: 3} // of a look's nvidia-smi, perhaps
	for _, e := range []DeviceOpen{
		{Kind: Opened, UID: alice, PID: 42, Minor: 3},
		{Kind: Opened, UID: 0, PID: 43, Minor: 3},
		{Kind: WouldDeny, UID: bob, PID: 44, Minor: 3},
		{Kind: Opened, UID: alice, PID: 0, Minor: 3},
	} {
		h.events <- e
	}
	var pids []snapshot.PID
	h.soon("the opens are in the file", func() bool {
		more := proctest.Try(r.Next()).OK(t)
		pids = append(pids, more...)
		return len(pids) >= 4
	})
	require.Equal(t, []snapshot.PID{42, 43, 44, 0}, pids)
}
