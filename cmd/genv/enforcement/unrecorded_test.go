package enforcement

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/controller"
)

// A leader that can't record what it does may do nothing: another controller leads until it can.
func TestALeaderWithoutARecord(t *testing.T) {
	full := errors.New("no space left on device")
	recorded, not, standby := controller.Cycle{}, controller.Cycle{Unrecorded: full}, controller.Cycle{Standby: true}
	for name, row := range map[string]struct {
		cycles []controller.Cycle
		room   bool // for the record, in the last cycle
		setup  func(l *loop)
		leads  bool
	}{
		"it is recorded":             {[]controller.Cycle{recorded, recorded}, true, nil, true},
		"one cycle isn't":            {[]controller.Cycle{not, recorded, not}, false, nil, true},
		"it isn't any more":          {[]controller.Cycle{recorded, not, not}, false, nil, false},
		"a standby without room":     {[]controller.Cycle{not, not, standby, standby}, false, nil, false},
		"a standby with room":        {[]controller.Cycle{not, not, standby, standby}, true, nil, true},
		"there is room at once":      {[]controller.Cycle{not, not, recorded}, true, nil, true},
		"it acts without":            {[]controller.Cycle{not, not}, false, func(l *loop) { l.setup.ActUnrecorded = true }, true},
		"it keeps no record":         {[]controller.Cycle{not, not}, false, func(l *loop) { l.record = nil }, true},
		"it isn't in an election":    {[]controller.Cycle{not, not}, false, func(l *loop) { l.part = nil }, true},
		"a standby that never tried": {[]controller.Cycle{standby, standby}, false, nil, true},
	} {
		folder := filepath.Join(t.TempDir(), "log")
		var log bytes.Buffer
		l := &loop{part: &participation{}, record: &audit.Log{Path: filepath.Join(folder, "audit.jsonl")}, log: zerolog.New(&log), service: &service{begun: time.Now()}}
		l.service.deadline.Store(int64(time.Hour))
		if row.setup != nil {
			row.setup(l)
		}
		for i := range row.cycles {
			if i == len(row.cycles)-1 && row.room {
				require.NoError(t, os.Mkdir(folder, 0o700))
			}
			l.noteRecord(&row.cycles[i])
		}
		require.Equal(t, row.leads, l.mayLead(), name)
		require.LessOrEqual(t, bytes.Count(log.Bytes(), []byte("can't be written")), 1, name)
	}
}
