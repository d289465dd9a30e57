package service

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// gpusOf are the GPUs 0 to n-1.
func gpusOf(n int) (list []snapshot.DeviceIndex) {
	for i := range n {
		list = append(list, snapshot.DeviceIndex(i))
	}
	return list
}

// asks is a wait for some GPUs more, as a round finds it.
func asks(id string, uid snapshot.UID, missing int, free []snapshot.DeviceIndex, since time.Duration) *wait {
	return &wait{noted: noted{Wait: snapshot.Wait{ID: id, UID: uid}, Since: since}, missing: missing, free: free}
}

func TestDecide(t *testing.T) {
	const hour = time.Hour
	now, over, behind := 100*hour, asks("a", 1, 1, gpusOf(1), 90*hour), asks("a", 1, 1, gpusOf(1), 75*hour)
	over.barred, behind.behind = "a cap", true
	for name, row := range map[string]struct {
		candidates []*wait
		have       map[snapshot.UID]int
		last       keptBack
		want       string
		holds      string
	}{
		"nobody":                         {nil, nil, keptBack{}, "map[]", ""},
		"there is enough":                {[]*wait{asks("a", 1, 2, gpusOf(3), 99*hour)}, nil, keptBack{}, "map[a:[0 1]]", ""},
		"who waits longest":              {[]*wait{asks("a", 1, 1, gpusOf(1), 99*hour), asks("b", 2, 1, gpusOf(1), 98*hour)}, nil, keptBack{}, "map[b:[0]]", "a"},
		"who has fewest":                 {[]*wait{asks("a", 1, 1, gpusOf(1), 99*hour), asks("b", 2, 1, gpusOf(1), 98*hour)}, map[snapshot.UID]int{2: 1}, keptBack{}, "map[a:[0]]", "b"},
		"people take turns":              {[]*wait{asks("a", 1, 1, gpusOf(3), 97*hour), asks("a2", 1, 1, gpusOf(3), 97*hour), asks("a3", 1, 1, gpusOf(3), 97*hour), asks("b", 2, 1, gpusOf(3), 99*hour)}, nil, keptBack{}, "map[a:[0] a2:[2] b:[1]]", "a3"},
		"over a day goes first":          {[]*wait{asks("a", 1, 1, gpusOf(1), 75*hour), asks("b", 2, 1, gpusOf(1), 99*hour)}, map[snapshot.UID]int{1: 7}, keptBack{}, "map[a:[0]]", "b"},
		"a day is not over":              {[]*wait{asks("a", 1, 1, gpusOf(1), 76*hour), asks("b", 2, 1, gpusOf(1), 99*hour)}, map[snapshot.UID]int{1: 7}, keptBack{}, "map[b:[0]]", "a"},
		"over a cap is passed over":      {[]*wait{over, asks("b", 2, 1, gpusOf(1), 99*hour)}, nil, keptBack{}, "map[b:[0]]", ""},
		"the first holds":                {[]*wait{asks("a", 1, 2, gpusOf(1), 90*hour), asks("b", 2, 1, gpusOf(1), 99*hour)}, nil, keptBack{}, "map[]", "a"},
		"it goes on to hold":             {[]*wait{asks("a", 1, 2, gpusOf(1), 90*hour), asks("b", 2, 1, gpusOf(1), 99*hour)}, nil, keptBack{"a", now - 29*time.Minute, 1, false}, "map[]", "a"},
		"it holds what suits it":         {[]*wait{asks("a", 1, 2, gpusOf(1), 90*hour), asks("b", 2, 1, gpusOf(2), 99*hour)}, nil, keptBack{}, "map[b:[1]]", "a"},
		"others pass after half an hour": {[]*wait{asks("a", 1, 2, gpusOf(1), 90*hour), asks("b", 2, 1, gpusOf(1), 99*hour)}, nil, keptBack{"a", now - 31*time.Minute, 1, false}, "map[b:[0]]", "a passes"},
		"for half an hour":               {[]*wait{asks("a", 1, 2, gpusOf(1), 90*hour), asks("b", 2, 1, gpusOf(1), 99*hour)}, nil, keptBack{"a", now - hour, 1, false}, "map[]", "a"},
		"another one goes on to hold":    {[]*wait{asks("a", 1, 2, gpusOf(1), 90*hour), asks("b", 2, 1, gpusOf(1), 99*hour)}, nil, keptBack{"gone", now - 31*time.Minute, 1, false}, "map[b:[0]]", "a passes"},
		"who let an offer pass":          {[]*wait{behind, asks("b", 2, 1, gpusOf(1), 99*hour)}, map[snapshot.UID]int{2: 7}, keptBack{}, "map[b:[0]]", "a"},
		"it has begun":                   {[]*wait{asks("c", 3, 1, gpusOf(2), 80*hour), asks("a", 1, 2, gpusOf(2), 90*hour), asks("b", 2, 1, gpusOf(2), 99*hour)}, nil, keptBack{"c", now - 31*time.Minute, 3, false}, "map[c:[0]]", "a"},
		"the same user's has begun":      {[]*wait{asks("c", 1, 1, gpusOf(2), 80*hour), asks("a", 1, 2, gpusOf(2), 90*hour), asks("b", 2, 1, gpusOf(2), 99*hour)}, map[snapshot.UID]int{2: 9}, keptBack{"c", now - 31*time.Minute, 1, false}, "map[b:[1] c:[0]]", "a passes"},
		"nothing was kept so far":        {[]*wait{asks("a", 1, 2, gpusOf(1), 90*hour), asks("b", 2, 1, gpusOf(1), 99*hour)}, nil, keptBack{"a", 0, 1, false}, "map[]", "a"},
		"nothing is free any more":       {[]*wait{asks("a", 1, 2, nil, 90*hour)}, nil, keptBack{"a", now - 31*time.Minute, 1, false}, "map[]", "a passes"},
		"over a day holds no longer":     {[]*wait{asks("a", 1, 2, gpusOf(1), 60*hour), asks("b", 2, 1, gpusOf(1), 99*hour)}, nil, keptBack{"a", now - 31*time.Minute, 1, false}, "map[b:[0]]", "a passes"},
	} {
		given, next := decide(row.candidates, row.have, row.last, now)
		ids := map[string][]snapshot.DeviceIndex{}
		for w, list := range given {
			ids[w.ID] = list
		}
		require.Equal(t, row.want, fmt.Sprint(ids), name)
		holds := next.id
		if holds != "" && !next.keeps(now) {
			holds += " passes"
		}
		require.Equal(t, row.holds, holds, name)
	}
}

// TestKeptBackForAPerson: another command of the same person goes on with the time, also after a break.
func TestKeptBackForAPerson(t *testing.T) {
	const now = 100 * time.Hour
	for name, row := range map[string]struct {
		uid  snapshot.UID
		gpus int // of the wait before the break
		at   time.Duration
		want bool
	}{
		"while it is kept":            {1, 2, 29 * time.Minute, true},
		"others may pass":             {1, 2, 31 * time.Minute, false},
		"for as long":                 {1, 2, time.Hour, true},
		"another person":              {2, 2, 31 * time.Minute, true},
		"who got what was waited for": {1, 1, 31 * time.Minute, false},
	} {
		first := asks("a1", 1, 2, gpusOf(1), now)
		_, kept := decide([]*wait{first}, nil, keptBack{}, now)
		require.True(t, kept.keeps(now), name)
		first.missing = row.gpus
		_, kept = decide([]*wait{first}, nil, kept, now+time.Minute)
		_, kept = decide(nil, nil, kept, now+2*time.Minute)
		require.False(t, kept.keeps(now+2*time.Minute), name)
		again := asks("a2", row.uid, 2, gpusOf(1), now+row.at)
		_, kept = decide([]*wait{again}, nil, kept, now+row.at)
		require.Equal(t, row.want, kept.keeps(now+row.at), name)
	}
}

// TestPropertyQueue: whatever people ask for, never more is given than is free, no one is forgotten, and people take
// turns.
func TestPropertyQueue(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		const gpus, people = 8, 5
		free, ends, waiting, have := gpusOf(gpus), map[time.Duration][]*wait{}, []*wait{}, map[snapshot.UID]int{}
		got, last, next := map[*wait][]snapshot.DeviceIndex{}, keptBack{}, 0
		for now := time.Duration(0); now < 30*24*time.Hour; now += 10 * time.Minute {
			if now > 3*24*time.Hour && len(waiting) == 0 {
				break
			}
			for _, c := range ends[now] {
				free = append(free, got[c]...)
				have[c.UID] -= c.missing
			}
			if now < 3*24*time.Hour && r.IntN(9) == 0 {
				c := asks(fmt.Sprint("w", next), snapshot.UID(r.IntN(people)), 1+r.IntN(gpus)/(1+r.IntN(4)), nil, now)
				next++
				waiting = append(waiting, c)
			}
			for i := range waiting {
				waiting[i].free = free
			}
			var given map[*wait][]snapshot.DeviceIndex
			before := slices.Clone(waiting)
			given, last = decide(waiting, have, last, now)
			var all []snapshot.DeviceIndex
			for _, c := range before {
				list, begins := given[c]
				if !begins {
					continue
				}
				require.Len(t, list, c.missing)
				all, got[c] = append(all, list...), list
				have[c.UID] += c.missing
				end := now + 10*time.Minute*time.Duration(1+r.IntN(60))
				ends[end] = append(ends[end], c)
			}
			for _, index := range all {
				at := slices.Index(free, index)
				require.GreaterOrEqual(t, at, 0, "seed %d: GPU %d is given twice, or isn't free", seed, index)
				free = slices.Delete(slices.Clone(free), at, at+1)
			}
			waiting = slices.DeleteFunc(waiting, func(c *wait) bool { return given[c] != nil })
			for _, c := range waiting {
				for _, other := range before { // of people with as few
					passes := given[other] != nil && other.Since > c.Since && other.missing >= c.missing && now-other.Since <= overdue
					require.False(t, passes && have[other.UID]-other.missing >= have[c.UID] && other.UID != c.UID,
						"seed %d: %v has passed %v", seed, other.ID, c.ID)
				}
			}
		}
		require.Empty(t, waiting, "seed %d: somebody is forgotten", seed)
	}
}

// TestALoopOfShortJobs: who waits again as soon as a job ends, which takes no time, keeps what is free from another for
// half of the time.
func TestALoopOfShortJobs(t *testing.T) {
	last, kept := keptBack{}, 0
	const start, minutes = 100 * time.Hour, 300
	for minute := range minutes {
		now := start + time.Duration(minute)*time.Minute
		free := 2 + min(1, minute%5/4) // the third one is free from time to time
		loop := asks(fmt.Sprint("loop", minute/5), 1, 3, gpusOf(free), now)
		other := asks("other", 2, 1, gpusOf(free), start)
		var given map[*wait][]snapshot.DeviceIndex
		given, last = decide([]*wait{loop, other}, map[snapshot.UID]int{2: 1}, last, now)
		if free == 2 && given[other] == nil {
			kept++
		}
	}
	require.InDelta(t, minutes/2*4/5, kept, 10)
}

// TestAWaitForAllGPUs goes first after a day. Also then it holds what is free for half an hour, and others pass for as
// long.
func TestAWaitForAllGPUs(t *testing.T) {
	last, passed := keptBack{}, 0
	for now := 2 * overdue; now < 2*overdue+5*time.Hour; now += 10 * time.Minute {
		all := asks("all", 1, 4, gpusOf(1), 1)
		other := asks(fmt.Sprint(now), 2, 1, gpusOf(1), now)
		var given map[*wait][]snapshot.DeviceIndex
		if given, last = decide([]*wait{all, other}, nil, last, now); given[other] != nil {
			passed++
		}
	}
	require.Equal(t, 15, passed, "three of six times an hour")
	all := asks("all", 1, 4, gpusOf(4), 1)
	other := asks("other", 2, 1, gpusOf(4), 2*overdue)
	given, _ := decide([]*wait{all, other}, map[snapshot.UID]int{1: 3}, last, 2*overdue+5*time.Hour)
	require.Len(t, given[all], 4, "though it has more")
}
