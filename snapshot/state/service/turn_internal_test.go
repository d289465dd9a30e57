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
		"it goes on to hold":             {[]candidate{{"a", 1, 2, gpusOf(1), 90 * hour, false, false}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, nil, keptBack{"a", now - 29*time.Minute, keepBackFor, 1}, "map[]", "a"},
		"it holds what suits it":         {[]candidate{{"a", 1, 2, gpusOf(1), 90 * hour, false, false}, {"b", 2, 1, gpusOf(2), 99 * hour, false, false}}, nil, keptBack{}, "map[b:[1]]", "a"},
		"others pass after half an hour": {[]candidate{{"a", 1, 2, gpusOf(1), 90 * hour, false, false}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, nil, keptBack{"a", now - 31*time.Minute, keepBackFor, 1}, "map[b:[0]]", "a passes"},
		"for half an hour":               {[]candidate{{"a", 1, 2, gpusOf(1), 90 * hour, false, false}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, nil, keptBack{"a", now - hour, keepBackFor, 1}, "map[]", "a"},
		"another one goes on to hold":    {[]candidate{{"a", 1, 2, gpusOf(1), 90 * hour, false, false}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, nil, keptBack{"gone", now - 31*time.Minute, keepBackFor, 1}, "map[b:[0]]", "a passes"},
		"who let an offer pass":          {[]candidate{{"a", 1, 1, gpusOf(1), 75 * hour, false, true}, {"b", 2, 1, gpusOf(1), 99 * hour, false, false}}, map[snapshot.UID]int{2: 7}, keptBack{}, "map[b:[0]]", "a"},
		"it has begun":                   {[]candidate{{"c", 3, 1, gpusOf(2), 80 * hour, false, false}, {"a", 1, 2, gpusOf(2), 90 * hour, false, false}, {"b", 2, 1, gpusOf(2), 99 * hour, false, false}}, nil, keptBack{"c", now - 31*time.Minute, keepBackFor, 1}, "map[c:[0]]", "a"},
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
		"who got what was waited for": {1, 1, 31 * time.Minute, true},
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

// TestAWaitForAllGPUs: while others always wait for one, whose jobs last for hours, a wait for all begins after a day.
func TestAWaitForAllGPUs(t *testing.T) {
	const gpus, job = 4, 5 * time.Hour
	ends, last := [gpus]time.Duration{}, keptBack{}
	for now := time.Duration(0); now < 48*time.Hour; now += 10 * time.Minute {
		list := []candidate{{id: "all", uid: 1, gpus: gpus}}
		for i := range gpus {
			list = append(list, candidate{id: fmt.Sprint(now, i), uid: snapshot.UID(2 + i), gpus: 1, since: now})
			if now == 0 {
				ends[i] = time.Duration(i) * 75 * time.Minute
			}
		}
		for i := range list {
			for k, end := range ends {
				if end <= now {
					list[i].free = append(list[i].free, snapshot.DeviceIndex(k))
				}
			}
		}
		var given map[string][]snapshot.DeviceIndex
		given, last = decide(list, nil, last, now)
		if given["all"] != nil {
			require.Greater(t, now, overdue)
			require.Less(t, now, overdue+job)
			return
		}
		for _, chosen := range given {
			ends[chosen[0]] = now + job
		}
	}
	t.Fatal("it waits for ever")
}
