package sharding

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/shards"
)

// A process could lead its shard if it sees half of the hosts. If it sees none for a while, others that see
// at least one may take the shard.
func TestSight(t *testing.T) {
	type notice struct {
		at   int // in seconds
		text string
	}
	cycle := func(at, answered, hosts int) notice {
		return notice{at, fmt.Sprintf("STATUS=cycle 1: %d of %d hosts answered\nX_GENV_ANSWERED=%d/%d", answered, hosts, answered, hosts)}
	}
	own := []int{3}
	nothing, some, blind := shards.Member{}, shards.Member{Seeing: own}, shards.Member{Blind: own}
	half, idle := shards.Member{Ready: own, Seeing: own}, shards.Member{Ready: own}
	for _, c := range []struct {
		name    string
		notices []notice
		says    shards.Member
	}{
		{"it has just been started", []notice{{0, "READY=1"}, {1, "WATCHDOG=1"}}, nothing},
		{"all answer", []notice{cycle(0, 4, 4), {1, "WATCHDOG=1"}}, half},
		{"half answer", []notice{cycle(0, 2, 4)}, half},
		{"less than half answer", []notice{cycle(0, 1, 3), cycle(60, 1, 3)}, some},
		{"none answers", []notice{cycle(0, 0, 4), cycle(29, 0, 4)}, nothing},
		{"none answers for long", []notice{cycle(0, 0, 4), cycle(30, 0, 4)}, blind},
		{"none answers, and a cycle is long", []notice{cycle(0, 0, 4), {300, "WATCHDOG=1"}}, nothing},
		{"some answer again", []notice{cycle(0, 0, 4), cycle(30, 0, 4), cycle(31, 1, 4), cycle(60, 0, 4)}, nothing},
		{"half answer again", []notice{cycle(0, 0, 4), cycle(30, 0, 4), cycle(31, 3, 4)}, half},
		{"the only one doesn't answer", []notice{cycle(0, 1, 1), cycle(10, 0, 1), cycle(50, 0, 1)}, blind},
		{"there are none", []notice{cycle(0, 0, 0), cycle(60, 0, 0)}, idle},
		{"another text", []notice{{0, "STATUS=cycle 1: 4 of 4 hosts answered"}, {1, "X_GENV_ANSWERED=many"}}, nothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s sight
			for _, n := range c.notices {
				s.note([]byte(n.text), time.Unix(int64(n.at), 0))
			}
			var says shards.Member
			require.Equal(t, c.says.Blind != nil, s.addTo(&says, 3))
			require.Equal(t, c.says, says)
		})
	}
}
