package caps

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/holdings"
)

// TestNothingIsTakenFromBeforeAUserMoved: shards look at their hosts at different times, so nothing is taken until all
// in which the user holds something have looked since the user was found over the cap. Decisions have the number
// of the step, from 1; the judge has been elected for long, and the cap is 2.
func TestNothingIsTakenFromBeforeAUserMoved(t *testing.T) {
	type step struct {
		seen   [2]uint64
		shards [2]string
		want   string
	}
	for name, steps := range map[string][]step{
		// Nothing goes:
		"moved, and the other shard is late": {
			{[2]uint64{0, 0}, [2]string{"a:1 b:2", ""}, ""},
			{[2]uint64{0, 1}, [2]string{"a:1 b:2", "c:0"}, "settling"},
			{[2]uint64{0, 2}, [2]string{"a:1 b:2", "c:0"}, "settling"},
			{[2]uint64{0, 3}, [2]string{"a:1 b:2", "c:0"}, "settling"},
			{[2]uint64{4, 4}, [2]string{"a:1", "c:0"}, ""},
		},
		"moved, and a cycle of the other shard was under way": {
			{[2]uint64{0, 0}, [2]string{"a:1 b:2", ""}, ""},
			{[2]uint64{0, 1}, [2]string{"a:1 b:2", "c:0"}, "settling"},
			{[2]uint64{1, 2}, [2]string{"a:1 b:2", "c:0"}, "settling"},
			{[2]uint64{2, 3}, [2]string{"a:1", "c:0"}, ""},
		},
		"moved again later, after a time within the cap": {
			{[2]uint64{0, 0}, [2]string{"a:1 b:2", "c:0"}, "settling"},
			{[2]uint64{1, 1}, [2]string{"a:1", "c:0"}, ""},
			{[2]uint64{2, 2}, [2]string{"a:1", "c:0 d:0"}, "settling"},
			{[2]uint64{2, 3}, [2]string{"a:1", "c:0 d:0"}, "settling"},
			{[2]uint64{3, 4}, [2]string{"", "c:0 d:0"}, ""},
		},
		"all moved": {
			{[2]uint64{0, 0}, [2]string{"a:1 b:2", ""}, ""},
			{[2]uint64{0, 9}, [2]string{"a:1 b:2", "c:0 d:0"}, "settling"},
			{[2]uint64{9, 9}, [2]string{"", "c:0 d:0"}, ""},
		},
		// Something goes:
		"all have looked again": {
			{[2]uint64{0, 0}, [2]string{"a:1 b:2", "c:0"}, "settling"},
			{[2]uint64{1, 0}, [2]string{"a:1 b:2", "c:0"}, "settling"},
			{[2]uint64{1, 1}, [2]string{"a:1 b:2", "c:0"}, "c"},
		},
		"and see something else that is over": {
			{[2]uint64{0, 0}, [2]string{"a:1 b:2", "c:0"}, "settling"},
			{[2]uint64{1, 1}, [2]string{"a:1 b:0", "c:2"}, "b"},
		},
		"and another cycle needn't look once more": {
			{[2]uint64{0, 0}, [2]string{"a:1 b:2", "c:0"}, "settling"},
			{[2]uint64{1, 1}, [2]string{"a:1 b:2", "c:0"}, "c"},
			{[2]uint64{1, 2}, [2]string{"a:1 b:2", "c:0"}, "c"},
		},
		"all of it is in one shard": {
			{[2]uint64{0, 0}, [2]string{"a:1 b:2 c:0", ""}, "c"},
		},
		"all of it is in one shard by now": {
			{[2]uint64{0, 0}, [2]string{"a:1 b:2", "c:0"}, "settling"},
			{[2]uint64{0, 0}, [2]string{"", "c:0 d:1 e:2"}, "c"},
		},
	} {
		j := newJudgeState(9)
		for i, s := range steps {
			list := published(t, [2]stamp{{9, s.seen[0]}, {9, s.seen[1]}}, s.shards[0], s.shards[1])
			j.decide(list, rulesOf(2), time.Duration(i)*repeatEvery)
			require.Equal(t, s.want, j.due(), "%s, step %d", name, i)
		}
		require.LessOrEqual(t, len(j.over), 1, name)
	}
}

// TestWhoCompliesInTimeLosesNothing: when the warning is over, nothing is taken either until all shards have looked
// again, since one of them may be late.
func TestWhoCompliesInTimeLosesNothing(t *testing.T) {
	for name, steps := range map[string][]struct {
		seen   [2]uint64
		shards [2]string
		warned bool // the warning is over
		want   string
	}{
		"gives back in time, and that shard is late": {
			{[2]uint64{0, 0}, [2]string{"a:3 b:2", "c:1"}, false, ""},
			{[2]uint64{2, 2}, [2]string{"a:3 b:2", "c:1"}, false, ""},
			{[2]uint64{2, 2}, [2]string{"a:3 b:2", "c:1"}, true, "settling"},
			{[2]uint64{2, 3}, [2]string{"a:3 b:2", "c:1"}, true, "settling"},
			{[2]uint64{4, 4}, [2]string{"a:3", "c:1"}, true, ""},
		},
		"moves just then, and that shard is late": {
			{[2]uint64{0, 0}, [2]string{"a:3 b:2", "c:4"}, false, ""},
			{[2]uint64{1, 2}, [2]string{"a:3 b:2", "c:4 d:0"}, true, "settling"},
			{[2]uint64{1, 3}, [2]string{"a:3 b:2", "c:4 d:0"}, true, "settling"},
			{[2]uint64{3, 3}, [2]string{"a:3", "c:4 d:0"}, true, "d"},
		},
		"doesn't comply": {
			{[2]uint64{0, 0}, [2]string{"a:3 b:2", "c:1"}, false, ""},
			{[2]uint64{1, 1}, [2]string{"a:3 b:2", "c:1"}, true, "settling"},
			{[2]uint64{2, 2}, [2]string{"a:3 b:2", "c:1"}, true, "c"},
			{[2]uint64{2, 2}, [2]string{"a:3 b:2", "c:1"}, true, "c"},
		},
	} {
		j := newJudgeState(9)
		for i, s := range steps {
			list := published(t, [2]stamp{{9, s.seen[0]}, {9, s.seen[1]}}, s.shards[0], s.shards[1])
			for k := range list {
				if !s.warned {
					list[k].Users[0].Due = 0
				}
			}
			j.decide(list, rulesOf(2), time.Duration(i)*repeatEvery)
			require.Equal(t, s.want, j.due(), "%s, step %d", name, i)
		}
	}
}

// TestWhatIsTakenAgainGoes: once all shards have looked again since something was due, and the user is over the cap still.
func TestWhatIsTakenAgainGoes(t *testing.T) {
	type step struct {
		seen   [2]uint64
		shards [2]string
		want   string
		again  bool
	}
	for name, steps := range map[string][]step{
		"attached again and again": {
			{[2]uint64{0, 0}, [2]string{"a:8 b:9", "c:9"}, "settling", false},
			{[2]uint64{1, 1}, [2]string{"a:7 b:8", "c:8"}, "a", false},
			{[2]uint64{1, 1}, [2]string{"a:6 b:7", "c:7"}, "a", false},
			{[2]uint64{2, 1}, [2]string{"a:5 b:7", "c:7"}, "a", false},
			{[2]uint64{2, 2}, [2]string{"a:4 b:7", "c:7"}, "a", true},
			{[2]uint64{3, 3}, [2]string{"b:7", "c:7"}, "", false},
		},
		"in one shard": {
			{[2]uint64{0, 0}, [2]string{"a:7 b:8 c:8", ""}, "a", false},
			{[2]uint64{0, 0}, [2]string{"a:6 b:8 c:8", ""}, "a", false},
			{[2]uint64{1, 0}, [2]string{"a:5 b:8 c:8", ""}, "a", true},
		},
		"after a time within the cap, all begins again": {
			{[2]uint64{0, 0}, [2]string{"a:7 b:8", "c:8"}, "settling", false},
			{[2]uint64{1, 1}, [2]string{"a:7 b:8", "c:8"}, "a", false},
			{[2]uint64{2, 1}, [2]string{"b:8", "c:8"}, "", false},
			{[2]uint64{3, 3}, [2]string{"a:4 b:8", "c:8"}, "settling", false},
			{[2]uint64{4, 4}, [2]string{"a:4 b:8", "c:8"}, "a", false},
			{[2]uint64{5, 5}, [2]string{"a:3 b:8", "c:8"}, "a", true},
		},
	} {
		j := newJudgeState(9)
		for i, s := range steps {
			list := published(t, [2]stamp{{9, s.seen[0]}, {9, s.seen[1]}}, s.shards[0], s.shards[1])
			j.decide(list, rulesOf(2), time.Duration(i)*repeatEvery)
			require.Equal(t, s.want, j.due(), "%s, step %d", name, i)
			for _, over := range j.lastSent[0].Over {
				require.Equal(t, s.again, over.Again, "%s, step %d", name, i)
			}
		}
	}
}

// TestAShardIsMissingForAWhile: if the cycles of a shard take longer than its holdings count, a user who is over the
// cap because of it doesn't begin to be over it each time it is back.
func TestAShardIsMissingForAWhile(t *testing.T) {
	type step struct {
		seen   [2]uint64
		shards []string // without the second one, it is missing
		want   string
	}
	for _, row := range []struct {
		name  string
		every time.Duration
		steps []step
	}{
		{"it is back soon", repeatEvery, []step{
			{[2]uint64{0, 0}, []string{"a:1 b:2", "c:3"}, "settling"},
			{[2]uint64{1, 0}, []string{"a:1 b:2"}, ""},
			{[2]uint64{2, 1}, []string{"a:1 b:2", "c:3"}, "a"},
			{[2]uint64{3, 1}, []string{"a:1 b:2"}, ""},
			{[2]uint64{3, 1}, []string{"a:1 b:2"}, ""},
			{[2]uint64{3, 3}, []string{"a:1 b:2", "c:3"}, "a"},
		}},
		{"it is back late", MaxEvery, []step{
			{[2]uint64{0, 0}, []string{"a:1 b:2", "c:3"}, "settling"},
			{[2]uint64{1, 0}, []string{"a:1 b:2"}, ""},
			{[2]uint64{2, 1}, []string{"a:1 b:2"}, ""},
			{[2]uint64{3, 3}, []string{"a:1 b:2", "c:3"}, "settling"},
		}},
		{"the user complied meanwhile", repeatEvery, []step{
			{[2]uint64{0, 0}, []string{"a:1 b:2", "c:3"}, "settling"},
			{[2]uint64{1, 0}, []string{"b:2"}, ""},
			{[2]uint64{2, 1}, []string{"b:2", "c:3"}, ""},
			{[2]uint64{3, 3}, []string{"a:0 b:2", "c:3"}, "settling"},
		}},
		{"the user held nothing there", repeatEvery, []step{
			{[2]uint64{0, 0}, []string{"a:1 b:2 c:3", ""}, "a"},
			{[2]uint64{1, 0}, []string{"b:2 c:3"}, ""},
			{[2]uint64{2, 2}, []string{"b:2 c:3", "d:0"}, "settling"},
		}},
	} {
		j := newJudgeState(9)
		for i, s := range row.steps {
			list := published(t, [2]stamp{{9, s.seen[0]}, {9, s.seen[1]}}, s.shards...)
			j.lastSent[1] = new(holdings.Decision)
			j.decide(list, rulesOf(2), time.Duration(i)*row.every)
			require.Equal(t, s.want, j.due(), "%s, step %d", row.name, i)
		}
	}
}
