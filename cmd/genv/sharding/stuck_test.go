package sharding

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/shards"
)

// A process that sends no signs of life is killed, which is logged once; one that was asked to end
// sends none while it waits for its reports.
func TestAStuckProcessIsKilled(t *testing.T) {
	for _, c := range []struct {
		name     string
		silent   time.Duration
		stopping bool
		killed   bool
	}{
		{"it works", time.Minute, false, false},
		{"it is stuck", 3 * time.Minute, false, true},
		{"it waits for its reports", time.Hour, true, false},
		{"it never ends", 3 * time.Hour, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("sleep", "600")
			require.NoError(t, cmd.Start())
			var log bytes.Buffer
			r := &run{
				Options:   Options{Config: Config{Count: 2}, Log: zerolog.New(&log), Clock: func() time.Duration { return time.Hour }},
				placement: shards.Placement{Self: "a", Count: 2}, members: shards.NewMembers(shards.MembersOptions{}), seen: new(shards.Seen),
				processes: map[int]*process{0: {cmd: cmd, started: time.Now().Add(-c.silent), stopping: c.stopping}},
			}
			if !c.stopping {
				r.seen.Members, r.with = []shards.Member{{ID: "a", Count: 2}}, map[int]bool{0: true}
			}
			r.place()
			r.place()
			lines := strings.Count(log.String(), "is stuck")
			if !c.killed {
				require.Zero(t, lines)
				require.NoError(t, cmd.Process.Kill(), "it is still running")
			} else {
				require.Equal(t, 1, lines)
			}
			require.ErrorContains(t, cmd.Wait(), "signal: killed")
		})
	}
}
