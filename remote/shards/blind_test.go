package shards_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/shards"
)

// controller is one of a simulation, which runs a process for the only shard or not.
type controller struct {
	id        string
	joins     int              // these are seconds
	sees      func(at int) int // percent of the hosts
	placement shards.Placement

	began int // the process; -1 for none
	saw   int // hosts last, or began
	count int // of processes
}

func (c *controller) member(at int) shards.Member {
	m := shards.Member{ID: c.id, Count: 1, Joined: uint64(c.joins)} //nolint:gosec // not negative
	if c.began >= 0 && at >= c.began+3 && c.sees(at) >= 50 {
		m.Ready = []int{0}
	}
	if c.began >= 0 && at >= c.began+3 && c.sees(at) > 0 {
		m.Seeing = []int{0}
	}
	if c.began >= 0 && at >= c.saw+30 {
		m.Blind = []int{0}
	}
	return m
}

// decide starts and ends the process.
func (c *controller) decide(at int, seen *shards.Seen) {
	switch runs := len(c.placement.Decide(time.Duration(at)*time.Second, seen)) > 0; {
	case !runs:
		c.began = -1
	case c.began < 0:
		c.began, c.saw = at, at
		c.count++
	case c.sees(at) > 0:
		c.saw = at
	}
}

// leaders runs a simulation, and returns who leads in each second. Who has run for longest is elected.
func leaders(seconds int, all ...*controller) (leaders []string) {
	var leads *controller
	for _, c := range all {
		c.placement, c.began = shards.Placement{Self: c.id, Count: 1}, -1
	}
	for at := range seconds {
		var seen shards.Seen
		if leads != nil {
			seen.Led = []int{0}
		}
		for _, c := range all {
			if at >= c.joins {
				seen.Members = append(seen.Members, c.member(at))
			}
		}
		for _, c := range all {
			if at >= c.joins {
				c.decide(at, &seen)
			}
		}
		if leads == nil || leads.began < 0 {
			leads = nil
			for _, c := range all {
				if c.began >= 0 && c.began < at && (leads == nil || c.began < leads.began) {
					leads = c
				}
			}
		}
		leaders = append(leaders, "none")
		if leads != nil {
			leaders[at] = leads.id
		}
	}
	return leaders
}

// A shard doesn't stay with a controller that sees none of its hosts if another one does, and doesn't
// go round and round.
func TestControllersThatSeeNoHosts(t *testing.T) {
	ranked := shards.Ranking(0, []string{"x", "y", "z"})
	percent := func(n int) func(int) int { return func(int) int { return n } }
	never, few, always := percent(0), percent(40), percent(100)
	but := func(from, to int) func(int) int {
		return func(at int) int {
			if at >= from && at < to {
				return 0
			}
			return 100
		}
	}
	twice := func(at int) int { return min(but(100, 2300)(at), but(5000, 5100)(at)) }
	flaps := func(at int) int { // a host doesn't answer for 5 s each half minute
		if at%30 < 5 {
			return 0
		}
		return 30
	}
	const hour = 3600
	for _, c := range []struct {
		name    string
		joins   [3]int // in the order of the ranking
		sees    [3]func(int) int
		leaders []string // one after the other; those of a moment are left out
		blindly int      // for how many seconds at most a blind one leads while another one could see hosts
	}{
		{"a blind one joins", [3]int{100, 0, 0}, [3]func(int) int{never, always, always}, []string{ranked[1]}, 0},
		{"all see hosts", [3]int{100, 0, 0}, [3]func(int) int{always, always, always}, []string{ranked[1], ranked[0]}, 0},
		{"the first one is blind from the start", [3]int{0, 0, 0}, [3]func(int) int{never, always, always}, []string{ranked[0], ranked[1]}, 90},
		{"two are blind", [3]int{0, 0, 0}, [3]func(int) int{never, never, always}, []string{ranked[0], ranked[1], ranked[2]}, 100},
		{"the first one gets blind, and sees again", [3]int{0, 0, 0}, [3]func(int) int{but(100, hour), always, always}, []string{ranked[0], ranked[1], ranked[0]}, 90},
		{"a switch fails for a moment", [3]int{0, 0, 0}, [3]func(int) int{but(100, 125), but(100, 125), but(100, 125)}, []string{ranked[0]}, 0},
		{"all hosts are down", [3]int{0, 0, 0}, [3]func(int) int{never, never, never}, []string{ranked[0]}, 0},
		{"all hosts were down", [3]int{0, 0, 0}, [3]func(int) int{but(100, hour), but(100, hour), but(100, hour)}, []string{ranked[0]}, 0},
		{"the first one sees them again a little later", [3]int{0, 0, 0}, [3]func(int) int{but(100, hour+15), but(100, hour), but(100, hour)}, []string{ranked[0]}, 15},
		{"the first one is blind, and most hosts are down", [3]int{0, 0, 0}, [3]func(int) int{never, few, few}, []string{ranked[0], ranked[1]}, 90},
		{"a blind one joins, and most hosts are down", [3]int{100, 0, 0}, [3]func(int) int{never, few, few}, []string{ranked[1]}, 0},
		{"two are blind, and most hosts are down", [3]int{0, 0, 0}, [3]func(int) int{never, never, few}, []string{ranked[0], ranked[1], ranked[2]}, 100},
		{"the first one is blind, and a host answers not always", [3]int{0, 0, 0}, [3]func(int) int{never, flaps, flaps}, []string{ranked[0], ranked[1]}, 120},
		{"most hosts are down for all", [3]int{0, 0, 0}, [3]func(int) int{few, few, few}, []string{ranked[0]}, 0},
		{"the first one gets blind twice", [3]int{0, 0, 0}, [3]func(int) int{twice, always, always}, []string{ranked[0], ranked[1], ranked[0], ranked[1], ranked[0]}, 140},
		{"one joins while all hosts are down", [3]int{100, 0, 0}, [3]func(int) int{but(50, hour), but(50, hour), but(50, hour)}, []string{ranked[1], ranked[0]}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []*controller
			for i, id := range ranked {
				all = append(all, &controller{id: id, joins: c.joins[i], sees: c.sees[i]})
			}
			var changes []string
			blindly := 0
			for at, id := range leaders(2*hour, all...) {
				for i, self := range all {
					others := all[(i+1)%3].sees(at) > 0 || all[(i+2)%3].sees(at) > 0
					if self.id == id && self.sees(at) == 0 && others {
						blindly++
					}
				}
				if id != "none" && (len(changes) == 0 || changes[len(changes)-1] != id) {
					changes = append(changes, id)
				}
			}
			require.Equal(t, c.leaders, changes)
			require.LessOrEqual(t, blindly, c.blindly)
			for _, self := range all {
				require.LessOrEqual(t, self.count, 6, "a blind one tries ever less often")
			}
		})
	}
}
