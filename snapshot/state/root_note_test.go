package state

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// lookStep is a look in a second after noon, at what is attached then: the time that its user
// wrote, and since when it counts.
type lookStep struct {
	second  int
	written string // 15:04:05; empty for no attachment
	since   int    // seconds after noon
}

func TestAgesAreBoundedByLooks(t *testing.T) {
	zone := time.FixedZone("", 2*3600)
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, zone)
	for name, steps := range map[string][]lookStep{
		"as it was written":               {{0, "", 0}, {60, "12:00:40", 40}, {600, "12:00:40", 40}},
		"the first look begins it":        {{60, "12:00:40", 60}, {600, "12:00:40", 60}},
		"TZ of a user, east":              {{0, "", 0}, {60, "20:00:40", 60}, {600, "20:00:40", 60}},
		"TZ of a user, west":              {{0, "", 0}, {60, "04:00:40", 0}, {600, "04:00:40", 0}},
		"TZ, and no look before":          {{60, "04:00:40", 60}, {600, "04:00:40", 60}},
		"attached again between two":      {{0, "", 0}, {60, "12:00:40", 40}, {120, "12:01:30", 90}},
		"attached again, with TZ":         {{0, "", 0}, {60, "12:00:40", 40}, {120, "04:01:30", 60}},
		"a time in the future":            {{0, "", 0}, {60, "23:59:59", 60}, {600, "23:59:59", 60}},
		"detached and attached as before": {{0, "", 0}, {60, "12:00:40", 40}, {120, "", 0}, {180, "12:00:40", 120}},
	} {
		t.Run(name, func(t *testing.T) {
			var seen RootNote
			for _, s := range steps {
				f := Files{Environments: []snapshot.Environment{{EID: "1"}}, Devices: []snapshot.Device{{Index: 3}}}
				if s.written != "" {
					at, err := snapshot.ParseDate("20/11/2026 " + s.written)
					require.NoError(t, err)
					f.Environments[0].Creation = at
					f.Devices[0].Attachments = []snapshot.Attachment{{EID: "1", Time: at}}
				} else {
					f.Environments = nil
				}
				seen.Apply(&f)
				seen = seen.Look(&f, noon.Add(time.Duration(s.second)*time.Second), snapshot.StartTime(5000+100*s.second), unknownStart)
				if s.written == "" {
					require.Empty(t, seen.Attachments)
					continue
				}
				want := snapshot.StartTime(5000 + 100*s.since)
				require.Equal(t, want, f.Devices[0].Attachments[0].Since, "%d s", s.second)
				require.Equal(t, want, f.Environments[0].Since)
			}
		})
	}
}

// A wall clock that is set changes no age.
func TestAgesWhenTheClockIsSet(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	at := snapshot.DateOf(noon)
	files := func() *Files {
		return &Files{Devices: []snapshot.Device{{Attachments: []snapshot.Attachment{{EID: "1", Time: at}}}}}
	}
	before := RootNote{At: 100}
	seen := before.Look(files(), noon, 5000, unknownStart)
	for _, set := range []time.Duration{0, -8 * time.Hour, 8 * time.Hour} {
		f := files()
		seen.Apply(f)
		seen.Look(f, noon.Add(time.Minute+set), 5000+6000, unknownStart)
		require.Equal(t, snapshot.StartTime(5000), f.Devices[0].Attachments[0].Since)
	}
	f := files()
	require.Equal(t, seen, seen.Look(f, noon, 0, unknownStart), "the time since boot is unknown")
	require.Zero(t, f.Devices[0].Attachments[0].Since)
}

func unknownStart(*snapshot.Environment, snapshot.PID) snapshot.StartTime { return 0 }

// numbered is a host of which root's genv looks at the GPUs.
type numbered struct {
	seen  RootNote
	files Files
	now   snapshot.StartTime
}

// look compares the GPUs, by the last letter of their UUIDs in the order of their indices.
func (n *numbered) look(gpus string) {
	n.now += 100
	f := Files{Environments: n.files.Environments}
	for _, d := range n.files.Devices { // as they are read
		f.KeepsNote = true
		f.Devices = append(f.Devices, snapshot.Device{Index: d.Index, TotalMemory: d.TotalMemory, Attachments: d.Attachments})
	}
	n.seen.Apply(&f)
	var found []snapshot.Device
	for i, letter := range gpus {
		found = append(found, snapshot.Device{Index: snapshot.DeviceIndex(i), UUID: snapshot.GPUUUID("GPU-" + string(letter)), TotalMemory: snapshot.MiB(100)})
	}
	f.MergeDevices(found)
	n.seen = n.seen.Look(&f, time.Unix(int64(n.now), 0), n.now, unknownStart)
	n.files = f
}

func (n *numbered) attach(eid snapshot.EnvID, index snapshot.DeviceIndex) {
	n.now += 100
	n.files.Environments = append(n.files.Environments, snapshot.Environment{EID: eid})
	_, err := n.files.Attach(AttachRequest{EID: eid, Indices: []snapshot.DeviceIndex{index}, At: snapshot.DateOf(time.Unix(int64(n.now), 0))})
	if err != nil {
		panic(err)
	}
}

func (n *numbered) refresh(eid snapshot.EnvID) {
	n.now += 100
	n.files.Refresh(eid, snapshot.DateOf(time.Unix(int64(n.now), 0)))
}

// unknown are the GPUs, by their UUIDs, of which it isn't known what is attached.
func (n *numbered) unknown() (letters string) {
	for _, d := range n.files.Devices {
		if d.Unidentified && d.UUID != "" {
			letters += strings.TrimPrefix(string(d.UUID), "GPU-")
		}
	}
	return letters
}

// What is attached to a GPU with another index than noted is unknown until it is attached again.
func TestRenumberedGPUs(t *testing.T) {
	n := &numbered{}
	n.look("abc")
	n.attach("alice", 0)
	n.attach("bob", 1)
	n.look("abc")
	require.Empty(t, n.unknown())
	n.look("bc") // GPU a left
	require.Equal(t, "bc", n.unknown(), "b has another index, and c the index of bob's attachment")
	n.look("abc")
	require.Equal(t, "abc", n.unknown(), "jobs may have begun by either numbering")
	n.refresh("alice")
	n.refresh("bob")
	n.look("abc")
	require.Empty(t, n.unknown())

	n.look("bac")
	require.Equal(t, "ba", n.unknown())
	n.look("bac")
	require.Equal(t, "ba", n.unknown(), "the next look knows it, too")
	n.refresh("alice")
	n.look("bac")
	require.Equal(t, "ba", n.unknown(), "bob's job may run on either")
	n.files.WarnRenumbered()
	require.Len(t, n.files.Warnings, 1)
	require.Contains(t, n.files.Warnings[0], "GPU 1 was another GPU since environment bob attached it")
	n.files.Detach("bob")
	n.look("bac")
	require.Empty(t, n.unknown())
	require.Equal(t, []snapshot.DeviceIndex{0}, n.files.AttachedTo("alice"), "she said that the present index is right")

	n.look("abc")
	require.Equal(t, "ab", n.unknown())
	at := snapshot.DateOf(time.Unix(int64(n.now), 0))
	for range 2 { // both in one second
		n.look("abc")
		n.files.Refresh("alice", at)
		n.seen = n.seen.Look(&n.files, time.Unix(int64(n.now), 0), n.now, unknownStart) // root's service wrote it
		n.look("abc")
		require.Empty(t, n.unknown())
		n.look("bac")
		require.Equal(t, "ba", n.unknown())
	}
	n.refresh("alice")
	n.look("bac")
	require.Empty(t, n.unknown())

	n.attach("carol", 2)
	n.look("ba") // c left since carol attached it
	n.look("bad")
	require.Equal(t, "d", n.unknown())
	n.files.Detach("carol")
	n.attach("dora", 2)
	n.look("bad")
	require.Empty(t, n.unknown())
}

func TestEarlierEnvironments(t *testing.T) {
	look := func(before RootNote, eids ...snapshot.EnvID) RootNote {
		f := Files{}
		for _, eid := range eids {
			f.Environments = append(f.Environments, snapshot.Environment{EID: eid, UID: 7})
		}
		before.Apply(&f)
		next := before.Look(&f, time.Unix(1000, 0), before.At+100, unknownStart)
		next.KeepEarlier(&before)
		return next
	}
	seen := look(look(RootNote{}, "1", "2"), "2")
	var f Files
	seen.Apply(&f)
	require.True(t, f.WasRegistered("1", 7), "it was dropped")
	require.True(t, f.WasRegistered("2", 7))
	require.False(t, f.WasRegistered("1", 8), "of another user")
	require.False(t, f.WasRegistered("3", 7))
	seen = look(seen, "1")
	require.Equal(t, []EnvironmentOwner{{"2", 7}}, seen.Earlier, "what is registered again isn't an earlier one")
	for i := range maxEarlier + 10 {
		seen = look(RootNote{At: 1, Environments: seen.Environments, Earlier: append(seen.Earlier, EnvironmentOwner{"x", snapshot.UID(100 + i)})}, "1")
	}
	require.Len(t, seen.Earlier, maxEarlier, "any user can register any number")
}
