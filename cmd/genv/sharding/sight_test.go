package sharding

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A process could lead its shard if it sees half of the hosts. If it sees none for a while, others may
// take the shard.
func TestSight(t *testing.T) {
	type notice struct {
		at   int // in seconds
		text string
	}
	cycle := func(at, answered, hosts int) notice {
		return notice{at, fmt.Sprintf("STATUS=cycle 1: %d of %d hosts answered\nX_GENV_ANSWERED=%d/%d", answered, hosts, answered, hosts)}
	}
	for _, c := range []struct {
		name         string
		notices      []notice
		ready, blind bool
	}{
		{"it has just been started", []notice{{0, "READY=1"}, {1, "WATCHDOG=1"}}, false, false},
		{"all answer", []notice{cycle(0, 4, 4), {1, "WATCHDOG=1"}}, true, false},
		{"half answer", []notice{cycle(0, 2, 4)}, true, false},
		{"less than half answer", []notice{cycle(0, 1, 3), cycle(60, 1, 3)}, false, false},
		{"none answers", []notice{cycle(0, 0, 4), cycle(29, 0, 4)}, false, false},
		{"none answers for long", []notice{cycle(0, 0, 4), cycle(30, 0, 4)}, false, true},
		{"none answers, and a cycle is long", []notice{cycle(0, 0, 4), {300, "WATCHDOG=1"}}, false, false},
		{"some answer again", []notice{cycle(0, 0, 4), cycle(30, 0, 4), cycle(31, 1, 4), cycle(60, 0, 4)}, false, false},
		{"half answer again", []notice{cycle(0, 0, 4), cycle(30, 0, 4), cycle(31, 3, 4)}, true, false},
		{"the only one doesn't answer", []notice{cycle(0, 1, 1), cycle(10, 0, 1), cycle(50, 0, 1)}, false, true},
		{"there are none", []notice{cycle(0, 0, 0), cycle(60, 0, 0)}, true, false},
		{"another text", []notice{{0, "STATUS=cycle 1: 4 of 4 hosts answered"}, {1, "X_GENV_ANSWERED=many"}}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s sight
			for _, n := range c.notices {
				s.note([]byte(n.text), time.Unix(int64(n.at), 0))
			}
			ready, blind := s.get()
			require.Equal(t, c.ready, ready, "ready")
			require.Equal(t, c.blind, blind, "blind")
		})
	}
}
