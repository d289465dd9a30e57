package state

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// step is a look in a second after noon, at what is attached then: the time that its user
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
			var looks Looks
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
				looks.Apply(&f)
				looks = looks.Look(&f, Moment{noon.Add(time.Duration(s.second) * time.Second), snapshot.StartTime(5000 + 100*s.second)})
				if s.written == "" {
					require.Empty(t, looks.Attachments)
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
	looks := Looks{At: 100}.Look(files(), Moment{noon, 5000})
	for _, set := range []time.Duration{0, -8 * time.Hour, 8 * time.Hour} {
		f := files()
		looks.Apply(f)
		looks.Look(f, Moment{noon.Add(time.Minute + set), 5000 + 6000})
		require.Equal(t, snapshot.StartTime(5000), f.Devices[0].Attachments[0].Since)
	}
	f := files()
	require.Equal(t, looks, looks.Look(f, Moment{noon, 0}), "the time since boot is unknown")
	require.Zero(t, f.Devices[0].Attachments[0].Since)
}
