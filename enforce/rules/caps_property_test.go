package rules_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// randomCaps are up to four caps of GPUs, with what each is about.
func randomCaps(r *rand.Rand) (list capList) {
	for i := range 1 + r.IntN(4) {
		c := listed(fmt.Sprint("cap", i), r.Int64N(5))
		for _, change := range []func(*enforce.Cap){together, perHost, onHosts("h0"), onHosts("h1h2"), ofModel("A"), about("alice"), about("bob"), about("alice? bob")} {
			if r.IntN(4) == 0 {
				change(c)
			}
		}
		switch r.IntN(6) {
		case 0:
			c.Limit = limitOf(enforce.CapLimit{Value: 1 + r.Int64N(100), Percent: true})
		case 1:
			c.Limit = limitOf(enforce.CapLimit{Value: r.Int64N(4), AllBut: true})
		case 2:
			if n := first(c); !c.Together { // by person, and nothing about bob
				c.Limit = func(u snapshot.Username) (enforce.CapLimit, bool) { return enforce.CapLimit{Value: n}, u != "bob" }
			}
		}
		list = append(list, c)
	}
	return list
}

// scope is what a cap counts by itself: people on a host, or on all.
type scope struct {
	limit   int64
	devices map[string][]snapshot.Username // who has each
}

// scopesOf are the scopes of a cap for what people have.
func scopesOf(c *enforce.Cap, cluster snapshot.Cluster, all map[snapshot.Username]*possessions) (scopes []scope) {
	working, isAbout := map[string]int64{}, map[string]bool{}
	for _, h := range cluster.Hosts {
		for i := range h.Snapshot.Devices {
			if d := &h.Snapshot.Devices[i]; c.OnHost(h.Name, nil) && c.IsAboutModel(enforce.ModelOf(d)) {
				isAbout[fmt.Sprint(h.Name, "/", d.Index)] = true
				working[string(h.Name)]++
				working[""]++
			}
		}
	}
	byScope := map[string]*scope{}
	for _, user := range slices.Sorted(maps.Keys(all)) {
		limit, limits := c.Limit(user)
		for _, d := range all[user].devices() {
			host, _, _ := strings.Cut(d, "/")
			if !limits || c.Member(user) != enforce.Member || !isAbout[d] {
				continue
			}
			if !c.PerHost {
				host = ""
			}
			key := host
			if !c.Together {
				key += " " + string(user)
			}
			if byScope[key] == nil {
				byScope[key] = &scope{limit.OfBase(working[host]), map[string][]snapshot.Username{}}
			}
			byScope[key].devices[d] = append(byScope[key].devices[d], user)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byScope)) {
		scopes = append(scopes, *byScope[key])
	}
	return scopes
}

// leavesOthers says that a cap takes nothing of a scope that somebody else has, too: then it may be left exceeded.
func leavesOthers(c *enforce.Cap, s scope, all map[snapshot.Username]*possessions) bool {
	limit, _ := c.Limit("")
	return limit.AllBut && slices.ContainsFunc(slices.Collect(maps.Keys(s.devices)), func(d string) bool { return severalHave(all, d) })
}

func TestPropertyListedCaps(t *testing.T) {
	over, taken := 0, 0
	for seed := range worlds {
		r := rand.New(rand.NewPCG(seed, 47))
		cluster, all := randomFleet(r)
		list := randomCaps(r)
		plan := evaluate(stated{all: enforce.Settings{CountOutside: r.IntN(2) == 0}, list: list}, cluster, noon(0))
		left, _ := afterPlan(plan, all)
		exceeded := map[snapshot.Username]bool{}
		for _, c := range list {
			for _, s := range scopesOf(c, cluster, all) {
				if int64(len(s.devices)) > s.limit {
					over++
					for _, user := range slices.Concat(slices.Collect(maps.Values(s.devices))...) {
						exceeded[user] = true
					}
				}
			}
			for _, s := range scopesOf(c, cluster, left) {
				if !leavesOthers(c, s, all) {
					require.LessOrEqual(t, int64(len(s.devices)), s.limit, "world %d: %s holds after the plan", seed, c.ID)
				}
			}
		}
		for user, before := range all {
			_, lost := before.after(plan, user)
			taken += len(lost)
			if !exceeded[user] {
				require.Empty(t, lost, "world %d: %s is over no cap", seed, user)
			}
		}
	}
	require.Greater(t, over, int(worlds/2))
	require.Greater(t, taken, int(worlds/2))
}

// afterPlan is what people have after a plan, and what each loses.
func afterPlan(plan enforce.Plan, all map[snapshot.Username]*possessions) (left map[snapshot.Username]*possessions, lost map[snapshot.Username][]string) {
	left, lost = map[snapshot.Username]*possessions{}, map[snapshot.Username][]string{}
	for user, before := range all {
		left[user], lost[user] = before.after(plan, user)
	}
	return left, lost
}

// exceeds says whether a cap is exceeded by somebody.
func exceeds(c *enforce.Cap, cluster snapshot.Cluster, all map[snapshot.Username]*possessions) bool {
	return slices.ContainsFunc(scopesOf(c, cluster, all), func(s scope) bool { return int64(len(s.devices)) > s.limit })
}

// withoutIdle is what people have once they lose what nothing uses.
func withoutIdle(all map[snapshot.Username]*possessions) map[snapshot.Username]*possessions {
	var used []string
	for _, p := range all {
		used = slices.Concat(used, slices.Concat(slices.Collect(maps.Values(p.processes))...))
	}
	left := map[snapshot.Username]*possessions{}
	for user, p := range all {
		left[user] = p.without(nil)
		maps.DeleteFunc(left[user].attached, func(d string, _ bool) bool { return !slices.Contains(used, d) })
	}
	return left
}

// Each thing that a cap of a list takes, given back with all that its processes hold, breaks this cap; what is busy does
// so even if all that is idle is given for it. And what the caps before it take goes just the same.
func TestPropertyListedCapsTakeNothingInVain(t *testing.T) {
	taken, busy := 0, 0
	for seed := range worlds {
		r := rand.New(rand.NewPCG(seed, 48))
		cluster, all := randomFleet(r)
		list := randomCaps(r)
		if r.IntN(2) == 0 {
			list = capList{listed("all", r.Int64N(6), together)}
		}
		before := map[snapshot.Username][]string{}
		for i, c := range list {
			left, lost := afterPlan(evaluate(stated{list: list[:i+1]}, cluster, noon(0)), all)
			for user, names := range lost {
				require.Subset(t, names, before[user], "world %d: %s takes less than without the one after it", seed, c.ID)
				for _, name := range names {
					devices, isProcess := all[user].processes[name]
					if slices.Contains(before[user], name) || severalHave(all, name) {
						continue
					}
					again := []string{name}
					for _, other := range names { // with what is attached to it
						if slices.Contains(devices, other) && !slices.Contains(before[user], other) {
							again = append(again, other)
						}
					}
					back := maps.Clone(left)
					back[user] = left[user].with(again, all[user])
					taken++
					require.True(t, exceeds(c, cluster, back), "world %d, %s: %s of %s goes in vain", seed, c.ID, name, user)
					if isProcess && !slices.ContainsFunc(scopesOf(c, cluster, all), func(s scope) bool { return leavesOthers(c, s, all) }) {
						busy++
						require.True(t, exceeds(c, cluster, withoutIdle(back)), "world %d, %s: idle GPUs would do for %s of %s", seed, c.ID, name, user)
					}
				}
			}
			before = lost
		}
	}
	require.Greater(t, taken, int(worlds/4))
	require.Greater(t, busy, int(worlds/8))
}

// The order in which hosts, people and processes are listed changes nothing, where everything began at another time.
func TestPropertyOrderOfTheInput(t *testing.T) {
	taken := 0
	for seed := range worlds {
		r := rand.New(rand.NewPCG(seed, 49))
		cluster, _ := randomFleet(r)
		policy, minute := stated{all: enforce.Settings{CountOutside: true}, list: randomCaps(r)}, 0
		next := func() snapshot.StartTime { minute++; return snapshot.StartTime(minute * 6000) }
		for i := range cluster.Hosts {
			s := cluster.Hosts[i].Snapshot
			s.Boot, s.UTCOffset = booted, new(0)
			for k := range s.Devices {
				for a := range s.Devices[k].Attachments {
					s.Devices[k].Attachments[a].Since = next()
				}
			}
			for k := range s.Processes {
				s.Processes[k].Start = next()
			}
		}
		want := items(evaluate(policy, cluster, noon(0)))
		for i := range cluster.Hosts {
			s := cluster.Hosts[i].Snapshot
			r.Shuffle(len(s.Processes), func(a, b int) { s.Processes[a], s.Processes[b] = s.Processes[b], s.Processes[a] })
			r.Shuffle(len(s.Environments), func(a, b int) {
				s.Environments[a], s.Environments[b] = s.Environments[b], s.Environments[a]
			})
		}
		r.Shuffle(len(cluster.Hosts), func(a, b int) { cluster.Hosts[a], cluster.Hosts[b] = cluster.Hosts[b], cluster.Hosts[a] })
		require.ElementsMatch(t, want, items(evaluate(policy, cluster, noon(0))), "world %d", seed)
		taken += len(want)
	}
	require.Greater(t, taken, int(worlds/2))
}

// severalHave says that several people have a GPU, or a process uses one that others have: it goes for all of them.
func severalHave(all map[snapshot.Username]*possessions, name string) bool {
	devices, n := []string{name}, map[string]int{}
	for _, p := range all {
		devices = append(devices, p.processes[name]...)
		for _, d := range p.devices() {
			n[d]++
		}
	}
	return slices.ContainsFunc(devices, func(d string) bool { return n[d] > 1 })
}

// Judging 64 caps for 200 hosts and 500 people takes little more than judging none.
func BenchmarkListedCaps(b *testing.B) {
	var cluster snapshot.Cluster
	for h := range 200 {
		s := &snapshot.Snapshot{Boot: booted}
		for i := range 16 {
			uid := snapshot.UID(1001 + (h*16+i)%500)
			s.Devices = append(s.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), Name: "NVIDIA A100", TotalMemory: snapshot.MiB(81559)})
			s.Processes = append(s.Processes, snapshot.Process{
				PID: snapshot.PID(100 + i), Start: snapshot.StartTime(i + 1), UID: &uid, Username: snapshot.Username(fmt.Sprint("u", uid)),
				Usage: []snapshot.DeviceUsage{{Index: snapshot.DeviceIndex(i)}},
			})
		}
		cluster.Hosts = append(cluster.Hosts, snapshot.Host{Name: snapshot.Hostname(fmt.Sprint("h", h)), Snapshot: s})
	}
	for _, most := range []int64{0, 20, 5} { // none, 64, and 64 that are exceeded
		var list capList
		for i := range min(most, 1) * 64 {
			c := listed(fmt.Sprint("c", i), most+i%5, ofModel("A"))
			if i%4 == 0 {
				together(c)
				c.Limit = limitOf(enforce.CapLimit{Value: min(85+most, 100), Percent: true})
			}
			list = append(list, c)
		}
		b.Run(fmt.Sprint(len(list), " of ", most), func(b *testing.B) {
			for b.Loop() {
				_ = evaluate(stated{all: enforce.Settings{CountOutside: true}, list: list}, cluster, time.Time{})
			}
		})
	}
}
