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

// A shard comes back to a controller while its old process still waits for reports: if no other
// controller leads it, that process must not keep a new one from starting.
func TestAShardThatComesBack(t *testing.T) {
	const again = "this controller has the shard again"
	for _, c := range []struct {
		name   string
		wanted bool
		led    []int
		asked  time.Duration // before now
		killed bool
	}{
		{"it comes back", true, []int{1}, time.Minute, true},
		{"the old process may still lead", true, nil, time.Second, false},
		{"another controller leads it", true, []int{0}, time.Minute, false},
		{"another controller has it", false, nil, time.Minute, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("sleep", "600")
			require.NoError(t, cmd.Start())
			var log bytes.Buffer
			r := &run{
				Options:   Options{Config: Config{Count: 1}, Log: zerolog.New(&log), Clock: func() time.Duration { return time.Hour }},
				placement: shards.Placement{Self: "a", Count: 1}, members: shards.NewMembers(shards.MembersOptions{}),
				seen: &shards.Seen{Members: []shards.Member{{ID: "a", Count: 1}}, Led: c.led}, with: map[int]bool{0: c.wanted},
				processes: map[int]*process{0: {cmd: cmd, started: time.Now(), stopping: true, asked: time.Now().Add(-c.asked)}},
			}
			r.place()
			r.place()
			if !c.killed {
				require.NotContains(t, log.String(), again)
				require.NoError(t, cmd.Process.Kill(), "it is still running")
			} else {
				require.Equal(t, 1, strings.Count(log.String(), again))
			}
			require.EqualError(t, cmd.Wait(), "signal: killed")
		})
	}
}
