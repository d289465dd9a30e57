package local_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// restored has the state files been restored at a time; never for the zero time.
func (m *machine) restored(at time.Time, since snapshot.StartTime) {
	if !at.IsZero() {
		m.files.Restorations = []state.Restoration{{At: at, Since: since}}
	}
}

func TestProcessesThatBeganAfterTheCopyAreSparedForAMinute(t *testing.T) {
	now := time.Date(2026, 11, 20, 21, 10, 33, 0, time.UTC)
	tests := []struct {
		name     string
		restored time.Time
		start    int
		eid      string
		unknown  bool
	}{
		{"began after the copy", now.Add(-59 * time.Second), 5000, "9", true},
		{"a minute has passed", now.Add(-time.Minute), 5000, "9", false},
		{"began before the copy", now, 4999, "9", false},
		{"its environment is registered", now, 5000, "2020", false},
		{"it claims none", now, 5000, "", false},
		{"nothing was restored", time.Time{}, 5000, "9", false},
		{"the clock went back", now.Add(time.Hour), 5000, "9", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			m.Now = func() time.Time { return now }
			m.files.Environments = []snapshot.Environment{{EID: "2020", UID: 1001}}
			m.restored(tt.restored, 5000)
			environ := "HOME=/\x00"
			if tt.eid != "" {
				environ += "GENV_ENVIRONMENT_ID=" + tt.eid + "\x00"
			}
			m.process(77, 1001, tt.start, environ)
			m.smi.apps = "GPU-0, 77, 100\n"
			s := m.snapshot()
			require.Len(t, s.Processes, 1)
			require.Equal(t, tt.unknown, s.Processes[0].EnvUnknown)
			if tt.unknown {
				require.Empty(t, s.Processes[0].EID)
				require.Contains(t, s.Warnings[len(s.Warnings)-1], "restored from a copy")
				return
			}
			require.Equal(t, snapshot.EnvID(tt.eid), s.Processes[0].EID)
			require.Empty(t, s.Warnings)
		})
	}
}

// What was attached after the copy is missing in it. A process that uses such a
// device has it attached again, and ends for nothing.
func TestAttachmentsMissingInTheCopyAreRestored(t *testing.T) {
	now := time.Date(2026, 11, 20, 21, 10, 33, 0, time.UTC)
	for name, tt := range map[string]struct {
		restored   time.Time
		uid        int
		eid        string
		reattached bool
	}{
		"soon after a restoration": {now.Add(-time.Second), 1001, "2020", true},
		"root's process in it":     {now.Add(-time.Second), 0, "2020", true},

		"nothing was restored":   {time.Time{}, 1001, "2020", false},
		"a minute has passed":    {now.Add(-time.Minute), 1001, "2020", false},
		"another user's process": {now.Add(-time.Second), 1002, "2020", false},
		"an unknown environment": {now.Add(-time.Second), 1001, "7", false},
		"no environment":         {now.Add(-time.Second), 1001, "", false},
		"not written yet":        {time.Time{}, 1001, "2020", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.Now = func() time.Time { return now }
			m.files.Environments = []snapshot.Environment{{EID: "2020", UID: 1001}}
			m.files.DevicesNotSaved = name == "not written yet"
			m.restored(tt.restored, 9000)
			m.process(77, tt.uid, 5000, "GENV_ENVIRONMENT_ID="+tt.eid+"\x00")
			m.smi.apps = "GPU-0, 77, 100\n"
			s := m.snapshot()
			require.Equal(t, tt.reattached, s.Device(0).Attachment("2020") != nil)
			require.Nil(t, s.Device(1).Attachment("2020"))
		})
	}
}

// The PIDs of another PID namespace are other processes here.
func TestRegisteredPIDsOfAnotherNamespaceAreIgnored(t *testing.T) {
	for unknown, want := range map[bool]member{false: {eid: "7", inherited: "7"}, true: {unknown: true}} {
		m := newMachine(t)
		m.finder(claimsNo, 1001, 1001, 1001)
		m.files.Environments = []snapshot.Environment{registered("7", 1001, 50)}
		m.files.LivenessUnknown = unknown
		p := m.snapshot().Processes[0]
		require.Equal(t, want, member{p.EID, p.Inherited, p.EnvUnknown, p.EnvOverwritten})
		processes, _, err := m.Processes(t.Context())
		require.NoError(t, err)
		require.Equal(t, p.EID, processes[0].EID)
	}
}
