package local_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

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
			m.books.Environments = []snapshot.Environment{{EID: "2020", UID: 1001}}
			m.books.RestoredAt, m.books.CopyStart = tt.restored, 5000
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
