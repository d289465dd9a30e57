package usage_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
)

// The property tests have a fleet of two hosts with two devices each. What happens there, the
// raw events, is at whole seconds; it is looked at then, and at other times.
const (
	fleetDevices = 4
	fleetSeconds = 3600 + 700
)

// rawEvent is something that happened at a second.
type rawEvent struct {
	at     int
	change func(*fleetState)
}

// fleetState is the fleet at one moment.
type fleetState struct {
	attached [fleetDevices]map[int]bool // users
	used     [fleetDevices]map[int]int  // processes of users
	percent  [fleetDevices]int          // -1 for unknown
	down     [fleetDevices / 2]bool
}

func newFleetState() *fleetState {
	s := new(fleetState)
	for d := range fleetDevices {
		s.attached[d], s.used[d] = make(map[int]bool), make(map[int]int)
	}
	return s
}

func randomEvents(r *rand.Rand) (events []rawEvent) {
	for range 100 {
		device, user, percent := r.IntN(fleetDevices), r.IntN(3), r.IntN(13)-1
		change := []func(*fleetState){
			func(s *fleetState) { s.attached[device][user] = true },
			func(s *fleetState) { delete(s.attached[device], user) },
			func(s *fleetState) { s.used[device][user]++ },
			func(s *fleetState) { delete(s.used[device], user) },
			func(s *fleetState) { s.percent[device] = percent },
			func(s *fleetState) { s.down[device/2] = !s.down[device/2] },
		}[r.IntN(6)]
		events = append(events, rawEvent{r.IntN(fleetSeconds), change})
	}
	slices.SortStableFunc(events, func(a, b rawEvent) int { return a.at - b.at })
	return events
}

// cluster is what a controller sees. eid is the user's environment on a host.
func (s *fleetState) cluster() snapshot.Cluster {
	hosts := make(map[snapshot.Hostname]*host)
	for i, name := range []snapshot.Hostname{"a", "b"} {
		if s.down[i] {
			hosts[name] = nil
			continue
		}
		h := newHost()
		for d := range 2 {
			h.Devices[d].Utilization = nil
			if p := s.percent[2*i+d]; p >= 0 {
				h.Devices[d].Utilization = new(p)
			}
			for user := range 3 {
				if s.attached[2*i+d][user] {
					h.attach(d, eidOf(user), userNamed(user))
				}
				for range s.used[2*i+d][user] {
					h.run(d, eidOf(user), userNamed(user))
				}
			}
		}
		hosts[name] = h
	}
	return clusterOf(hosts)
}

func userNamed(n int) snapshot.Username { return snapshot.Username(fmt.Sprintf("%cuser", 'a'+n)) }
func eidOf(user int) snapshot.EnvID     { return snapshot.EnvID(fmt.Sprint(100 + user)) }
func hostOf(device int) string          { return string(rune('a' + device/2)) }

// counted is the independent calculation: second by second, from the events alone.
type counted struct {
	users, hosts map[string]usage.Amounts
	peak         map[string]int64 // of users
}

func countSeconds(events []rawEvent) counted {
	c := counted{make(map[string]usage.Amounts), make(map[string]usage.Amounts), make(map[string]int64)}
	state, last := newFleetState(), [fleetDevices]map[int]bool{}
	for second, next := 0, 0; second < fleetSeconds; second++ {
		for ; next < len(events) && events[next].at == second; next++ {
			events[next].change(state)
		}
		devices := make(map[string]int64)
		for d := range fleetDevices {
			down := state.down[d/2]
			if !down {
				last[d] = make(map[int]bool)
				for user := range state.attached[d] {
					last[d][user] = true
				}
			}
			whole := secondOf(len(last[d]) > 0, len(state.used[d]) > 0, down, state.percent[d])
			for user := range 3 {
				one := secondOf(last[d][user], state.used[d][user] > 0, down, state.percent[d])
				if !down {
					one.Memory = int64(1024 * state.used[d][user])
				}
				whole.Memory += one.Memory
				devices[string(userNamed(user))] += one.Attached
				addTo(c.users, string(userNamed(user)), one)
			}
			addTo(c.hosts, hostOf(d), whole)
		}
		for user, n := range devices {
			c.peak[user] = max(c.peak[user], n)
		}
	}
	return c
}

func addTo(sums map[string]usage.Amounts, key string, a usage.Amounts) {
	total := sums[key]
	total.Add(&a)
	sums[key] = total
}

func secondOf(attached, used, down bool, percent int) (a usage.Amounts) {
	n := func(is bool) int64 {
		if is {
			return 1
		}
		return 0
	}
	return usage.Amounts{
		Attached: n(attached && !down), Used: n(used && !down), Computing: n(used && !down && percent > 5),
		Idle: n(attached && !used && !down), Unknown: n(attached && down), Unmeasured: n(used && !down && percent < 0),
	}
}

// TestPropertyOfSums: what an account counts is what a calculation second by second finds,
// however often it looks, and whenever its sums are taken.
func TestPropertyOfSums(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		events := randomEvents(r)
		account, state, total := usage.NewMeter(time.UTC), newFleetState(), make(usage.Sums)
		seen := state.cluster()
		look := func(second int, fraction time.Duration) {
			if fraction == 0 || r.IntN(2) == 0 { // otherwise the hosts answer that nothing has changed
				seen = state.cluster()
			}
			account.Look(begin.Add(time.Duration(second)*time.Second+fraction), seen)
			if r.IntN(5) == 0 {
				total.Merge(account.Take())
			}
		}
		look(0, 0)
		for next := 0; next < len(events); {
			second := events[next].at
			for ; next < len(events) && events[next].at == second; next++ {
				events[next].change(state)
				look(second, 0)
			}
			for range r.IntN(4) {
				look(second, time.Duration(r.IntN(1000))*time.Millisecond/4)
			}
		}
		account.Settle(begin.Add(fleetSeconds * time.Second))
		total.Merge(account.Take())

		want := countSeconds(randomEvents(rand.New(rand.NewPCG(seed, 1))))
		var all usage.Amounts
		for name, amounts := range want.users {
			got := sum(total, usage.OfUser, name)
			require.Equal(t, amounts, got.Amounts, "%s, seed %d", name, seed)
			require.GreaterOrEqual(t, got.Peak, want.peak[name], "a peak may be of less than a second")
		}
		for name, amounts := range want.hosts {
			require.Equal(t, amounts, sum(total, usage.OfHost, name).Amounts, "%s, seed %d", name, seed)
			all.Add(&amounts)
		}
		require.Equal(t, all, sum(total, usage.OfAll, "").Amounts)
		require.Equal(t, all, sum(total, usage.OfModel, "H100").Amounts)
	}
}
