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

func TestDecide(t *testing.T) {
	const hour = time.Hour
	now := 100 * hour
	for name, row := range map[string]struct {
		candidates []candidate
		have       map[snapshot.UID]int
		last       keptBack
		want       string
		holds      string
	}{
		"nobody":                         {nil, nil, keptBack{}, "map[]", ""},
		"there is enough":                {[]candidate{{"a", 1, 2, gpusOf(3), 99 * hour, false, false}}, nil, keptBack{}, "map[a:[0 1]]", ""},
		"who waits longest":              {[]candidate{{"a", 1, 1, gpusOf(1), 99 * hour, false, false}, {"b", 2, 1, gpusOf(1), 98 * hour, false, false}}, nil, keptBack{}, "map[b:[0]]", "a"},
		"who has fewest":                 {[]candidate{{"a", 1, 1, gpusOf(1), 99 * hour, false, false}, {"b", 2, 1, gpusOf(1), 98 * hour, false, false}}, map[snapshot.UID]int{2: 1}, keptBack{}, "map[a:[0]]", "b"},
		"people take turns":              {[]candidate{{"a", 1, 1, gpusOf(3), 97 * hour, false, false}, {"a2", 1, 1, gpusOf(3), 97 * hour, false, false}, {"a3", 1, 1, gpusOf(3), 97 * hour, false, false}, {"b", 2, 1, gpusOf(3), 99 * hour, false, false}}, nil, keptBack{}, "map[a:[0] a2:[2] b:[1]]", "a3"},
		"over a day goes first":          {[]candidate{{"a", 1, 1, gpusOf(1), 75 * hour, false, false}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, map[snapshot.UID]int{1: 7}, keptBack{}, "map[a:[0]]", "b"},
		"a day is not over":              {[]candidate{{"a", 1, 1, gpusOf(1), 76 * hour, false, false}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, map[snapshot.UID]int{1: 7}, keptBack{}, "map[b:[0]]", "a"},
		"over a cap is passed over":      {[]candidate{{"a", 1, 1, gpusOf(1), 90 * hour, true, false}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, nil, keptBack{}, "map[b:[0]]", ""},
		"the first holds":                {[]candidate{{"a", 1, 2, gpusOf(1), 90 * hour, false, false}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, nil, keptBack{}, "map[]", "a"},
		"it goes on to hold":             {[]candidate{{"a", 1, 2, gpusOf(1), 90 * hour, false, false}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, nil, keptBack{"a", now - 29*time.Minute, 1, false}, "map[]", "a"},
		"it holds what suits it":         {[]candidate{{"a", 1, 2, gpusOf(1), 90 * hour, false, false}, {"b", 2, 1, gpusOf(2), 99 * hour, false, false}}, nil, keptBack{}, "map[b:[1]]", "a"},
		"others pass after half an hour": {[]candidate{{"a", 1, 2, gpusOf(1), 90 * hour, false, false}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, nil, keptBack{"a", now - 31*time.Minute, 1, false}, "map[b:[0]]", "a passes"},
		"for half an hour":               {[]candidate{{"a", 1, 2, gpusOf(1), 90 * hour, false, false}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, nil, keptBack{"a", now - hour, 1, false}, "map[]", "a"},
		"another one goes on to hold":    {[]candidate{{"a", 1, 2, gpusOf(1), 90 * hour, false, false}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, nil, keptBack{"gone", now - 31*time.Minute, 1, false}, "map[b:[0]]", "a passes"},
		"who let an offer pass":          {[]candidate{{"a", 1, 1, gpusOf(1), 75 * hour, false, true}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, map[snapshot.UID]int{2: 7}, keptBack{}, "map[b:[0]]", "a"},
		"it has begun":                   {[]candidate{{"c", 3, 1, gpusOf(2), 80 * hour, false, false}, {"a", 1, 2, gpusOf(2), 90 * hour, false, false}, {"b", 2, 1, gpusOf(2), 99 * hour, false, false}}, nil, keptBack{"c", now - 31*time.Minute, 3, false}, "map[c:[0]]", "a"},
		"the same user's has begun":      {[]candidate{{"c", 1, 1, gpusOf(2), 80 * hour, false, false}, {"a", 1, 2, gpusOf(2), 90 * hour, false, false}, {"b", 2, 1, gpusOf(2), 99 * hour, false, false}}, map[snapshot.UID]int{2: 9}, keptBack{"c", now - 31*time.Minute, 1, false}, "map[b:[1] c:[0]]", "a passes"},
		"nothing was kept so far":        {[]candidate{{"a", 1, 2, gpusOf(1), 90 * hour, false, false}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, nil, keptBack{"a", 0, 1, false}, "map[]", "a"},
		"nothing is free any more":       {[]candidate{{"a", 1, 2, nil, 90 * hour, false, false}}, nil, keptBack{"a", now - 31*time.Minute, 1, false}, "map[]", "a passes"},
		"over a day holds no longer":     {[]candidate{{"a", 1, 2, gpusOf(1), 60 * hour, false, false}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, nil, keptBack{"a", now - 31*time.Minute, 1, false}, "map[b:[0]]", "a passes"},
	} {
		given, next := decide(row.candidates, row.have, row.last, now)
		require.Equal(t, row.want, fmt.Sprint(given), name)
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
		first := candidate{id: "a1", uid: 1, gpus: 2, free: gpusOf(1), since: now}
		_, kept := decide([]candidate{first}, nil, keptBack{}, now)
		require.True(t, kept.keeps(now), name)
		first.gpus = row.gpus
		_, kept = decide([]candidate{first}, nil, kept, now+time.Minute)
		_, kept = decide(nil, nil, kept, now+2*time.Minute)
		require.False(t, kept.keeps(now+2*time.Minute), name)
		again := candidate{id: "a2", uid: row.uid, gpus: 2, free: gpusOf(1), since: now + row.at}
		_, kept = decide([]candidate{again}, nil, kept, now+row.at)
		require.Equal(t, row.want, kept.keeps(now+row.at), name)
	}
}

// TestPropertyQueue: whatever people ask for, never more is given than is free, no one is forgotten, and people take
// turns.
func TestPropertyQueue(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		const gpus, people = 8, 5
		free, ends, waiting, have := gpusOf(gpus), map[time.Duration][]candidate{}, []candidate{}, map[snapshot.UID]int{}
		got, last, next := map[string][]snapshot.DeviceIndex{}, keptBack{}, 0
		for now := time.Duration(0); now < 30*24*time.Hour; now += 10 * time.Minute {
			if now > 3*24*time.Hour && len(waiting) == 0 {
				break
			}
			for _, c := range ends[now] {
				free = append(free, got[c.id]...)
				have[c.uid] -= c.gpus
			}
			if now < 3*24*time.Hour && r.IntN(9) == 0 {
				c := candidate{id: fmt.Sprint("w", next), uid: snapshot.UID(r.IntN(people)), gpus: 1 + r.IntN(gpus)/(1+r.IntN(4)), since: now}
				next++
				waiting = append(waiting, c)
			}
			for i := range waiting {
				waiting[i].free = free
			}
			var given map[string][]snapshot.DeviceIndex
			before := slices.Clone(waiting)
			given, last = decide(waiting, have, last, now)
			var all []snapshot.DeviceIndex
			for _, c := range before {
				list, begins := given[c.id]
				if !begins {
					continue
				}
				require.Len(t, list, c.gpus)
				all, got[c.id] = append(all, list...), list
				have[c.uid] += c.gpus
				end := now + 10*time.Minute*time.Duration(1+r.IntN(60))
				ends[end] = append(ends[end], c)
			}
			for _, index := range all {
				at := slices.Index(free, index)
				require.GreaterOrEqual(t, at, 0, "seed %d: GPU %d is given twice, or isn't free", seed, index)
				free = slices.Delete(slices.Clone(free), at, at+1)
			}
			waiting = slices.DeleteFunc(waiting, func(c candidate) bool { return given[c.id] != nil })
			for _, c := range waiting {
				for _, other := range before { // of people with as few
					passes := given[other.id] != nil && other.since > c.since && other.gpus >= c.gpus && now-other.since <= overdue
					require.False(t, passes && have[other.uid]-other.gpus >= have[c.uid] && other.uid != c.uid,
						"seed %d: %v has passed %v", seed, other, c)
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
		loop := candidate{id: fmt.Sprint("loop", minute/5), uid: 1, gpus: 3, free: gpusOf(free), since: now}
		other := candidate{id: "other", uid: 2, gpus: 1, free: gpusOf(free), since: start}
		var given map[string][]snapshot.DeviceIndex
		given, last = decide([]candidate{loop, other}, map[snapshot.UID]int{2: 1}, last, now)
		if free == 2 && given["other"] == nil {
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
		all := candidate{id: "all", uid: 1, gpus: 4, free: gpusOf(1), since: 1}
		other := candidate{id: fmt.Sprint(now), uid: 2, gpus: 1, free: gpusOf(1), since: now}
		var given map[string][]snapshot.DeviceIndex
		if given, last = decide([]candidate{all, other}, nil, last, now); given[other.id] != nil {
			passed++
		}
	}
	require.Equal(t, 15, passed, "three of six times an hour")
	all := candidate{id: "all", uid: 1, gpus: 4, free: gpusOf(4), since: 1}
	other := candidate{id: "other", uid: 2, gpus: 1, free: gpusOf(4), since: 2 * overdue}
	given, _ := decide([]candidate{all, other}, map[snapshot.UID]int{1: 3}, last, 2*overdue+5*time.Hour)
	require.Len(t, given["all"], 4, "though it has more")
}
