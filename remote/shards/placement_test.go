package shards_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/shards"
)

func member(id string, ready bool, joined uint64) shards.Member {
	m := shards.Member{ID: id, Count: 1, Joined: joined}
	if ready {
		m.Ready = []int{0}
	}
	return m
}

// Of one shard, the ranking of the controllers one, two and three decides who has it.
func TestPlacement(t *testing.T) {
	ranked := shards.Ranking(0, []string{"x", "y", "z"})
	first, second, third := ranked[0], ranked[1], ranked[2]
	type step struct {
		at      int // in seconds
		members []shards.Member
		led     bool
		runs    bool
	}
	for name, c := range map[string]struct {
		self  string
		steps []step
	}{
		"the first one takes a shard at once, and keeps it": {first, []step{
			{0, []shards.Member{member(first, false, 1), member(second, false, 2)}, false, true},
			{1, []shards.Member{member(first, true, 1), member(second, false, 2)}, true, true},
			{1000, []shards.Member{member(first, true, 1), member(second, true, 2)}, false, true},
		}},
		"the second one doesn't while there is a leader": {second, []step{
			{0, []shards.Member{member(first, false, 1), member(second, false, 2)}, true, false},
			{1000, []shards.Member{member(first, true, 1), member(second, false, 2)}, true, false},
			{1009, []shards.Member{member(first, true, 1), member(second, false, 2)}, false, false},
		}},
		"it does when the first one is gone": {second, []step{
			{0, []shards.Member{member(first, true, 1), member(second, false, 2), member(third, false, 3)}, true, false},
			{1, []shards.Member{member(second, false, 2), member(third, false, 3)}, true, true},
		}},
		"it waits until a new first one is ready": {second, []step{
			{0, []shards.Member{member(second, true, 2)}, true, true},
			{1, []shards.Member{member(second, true, 2), member(first, false, 3)}, true, true},
			{60, []shards.Member{member(second, true, 2), member(first, false, 3)}, true, true},
			{61, []shards.Member{member(second, true, 2), member(first, true, 3)}, true, false},
		}},
		"it takes what the first one doesn't lead, and keeps it for a while": {second, []step{
			{0, []shards.Member{member(first, true, 1), member(second, false, 2)}, false, false},
			{9, []shards.Member{member(first, true, 1), member(second, false, 2)}, false, false},
			{10, []shards.Member{member(first, true, 1), member(second, false, 2)}, false, true},
			{11, []shards.Member{member(first, true, 1), member(second, true, 2)}, true, true},
			{309, []shards.Member{member(first, true, 1), member(second, true, 2)}, true, true},
			{310, []shards.Member{member(first, true, 1), member(second, true, 2)}, true, false},
			{311, []shards.Member{member(first, true, 1), member(second, true, 2)}, true, false},
		}},
		"it gives it back sooner to one that was started again": {second, []step{
			{0, []shards.Member{member(first, true, 1), member(second, false, 2)}, false, false},
			{10, []shards.Member{member(first, true, 1), member(second, false, 2)}, false, true},
			{20, []shards.Member{member(first, false, 5), member(second, true, 2)}, true, true},
			{21, []shards.Member{member(first, true, 5), member(second, true, 2)}, true, false},
		}},
		"the third one waits longer": {third, []step{
			{0, []shards.Member{member(first, true, 1), member(second, false, 2), member(third, false, 3)}, false, false},
			{19, []shards.Member{member(first, true, 1), member(second, false, 2), member(third, false, 3)}, false, false},
			{20, []shards.Member{member(first, true, 1), member(second, false, 2), member(third, false, 3)}, false, true},
		}},
		"a short gap between two leaders is none": {second, []step{
			{0, []shards.Member{member(first, true, 1), member(second, false, 2)}, true, false},
			{9, []shards.Member{member(first, true, 1), member(second, false, 2)}, false, false},
			{10, []shards.Member{member(first, true, 1), member(second, false, 2)}, true, false},
			{19, []shards.Member{member(first, true, 1), member(second, false, 2)}, false, false},
		}},
		"one that isn't seen itself goes on as it was": {second, []step{
			{0, []shards.Member{member(second, true, 2)}, true, true},
			{1, []shards.Member{member(first, true, 3)}, true, true},
			{2, nil, false, true},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := shards.Placement{Self: c.self, Count: 1}
			for _, s := range c.steps {
				seen := shards.Seen{Members: s.members}
				if s.led {
					seen.Led = []int{0}
				}
				run := p.Decide(time.Duration(s.at)*time.Second, &seen)
				require.Equal(t, s.runs, len(run) == 1, "after %d s", s.at)
			}
		})
	}
}
