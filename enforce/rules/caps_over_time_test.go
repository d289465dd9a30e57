package rules_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// gpuAt is a GPU of a lab.
type gpuAt struct{ host, index int }

// lab is two hosts with four GPUs each. Three people attach them, and give them back.
type lab struct {
	*rand.Rand
	has    map[gpuAt]int // whose each is
	since  map[gpuAt]int // the minute
	silent [2]int        // how many minutes each host doesn't answer
}

var people = []snapshot.Username{"alice", "bob", "carol"}

func newLab(seed uint64) *lab {
	return &lab{Rand: rand.New(rand.NewPCG(seed, 50)), has: map[gpuAt]int{}, since: map[gpuAt]int{}}
}

// attach attaches a GPU that is free, if there is one on the host.
func (l *lab) attach(user, host, minute int) {
	for i := range 4 {
		if _, used := l.has[gpuAt{host, i}]; !used {
			l.has[gpuAt{host, i}], l.since[gpuAt{host, i}] = user, minute
			return
		}
	}
}

// detach gives back one of the GPUs of somebody.
func (l *lab) detach(user int) {
	for host := range 2 {
		for i := range 4 {
			if who, used := l.has[gpuAt{host, i}]; used && who == user {
				delete(l.has, gpuAt{host, i})
				return
			}
		}
	}
}

func (l *lab) count(who func(user int) bool) (n int) {
	for _, user := range l.has {
		if who(user) {
			n++
		}
	}
	return n
}

// look is what a host shows.
func (l *lab) look(host int, at time.Time) snapshot.Host {
	h := snapshot.Host{Name: snapshot.Hostname(fmt.Sprint("h", host)), AskedAt: at, IsNew: true}
	if l.silent[host] > 0 {
		h.Err = errDown
		return h
	}
	h.Snapshot = &snapshot.Snapshot{Boot: booted, UTCOffset: new(0)}
	for i, user := range people {
		h.Snapshot.Environments = append(h.Snapshot.Environments, snapshot.Environment{EID: snapshot.EnvID(user), UID: snapshot.UID(1001 + i), Username: user, Since: 1})
	}
	for i := range 4 {
		d := snapshot.Device{Index: snapshot.DeviceIndex(i), UUID: snapshot.GPUUUID(fmt.Sprint("GPU-", host, i)), TotalMemory: snapshot.MiB(81559)}
		if user, used := l.has[gpuAt{host, i}]; used {
			d.Attachments = []snapshot.Attachment{{EID: snapshot.EnvID(people[user]), Since: snapshot.StartTime(6000 * (1 + l.since[gpuAt{host, i}]))}}
		}
		h.Snapshot.Devices = append(h.Snapshot.Devices, d)
	}
	return h
}

// carryOut carries a plan out.
func (l *lab) carryOut(plan enforce.Plan) {
	for _, o := range plan.Orders {
		for _, d := range o.Order.Detach {
			delete(l.has, gpuAt{int(o.Host[1] - '0'), int(d.Device)})
		}
	}
}

// loss is what somebody is to lose by a cap.
type loss struct {
	cap  string
	user snapshot.Username
}

// lossesOf are how many GPUs are lost now, or are to be at some time.
func lossesOf(plan enforce.Plan, at time.Time) map[loss]int {
	losses := map[loss]int{}
	for _, f := range plan.Findings {
		if f.Pending == !at.IsZero() && !(f.Pending && f.Due.After(at)) {
			losses[loss{strings.Split(f.ID, "/")[1], f.User}] += len(f.Detach)
		}
	}
	return losses
}

// Whoever loses GPUs was told so in time, of as many, and for no later time, also where a reload shortened the warning;
// a cap that is exceeded comes due, whoever would lose, and no pause of the controller counts.
func TestPropertyOverTimeEverybodyIsWarned(t *testing.T) {
	taken := 0
	cases := proctest.Cases(150)
	for seed := range cases {
		l, warn, off := newLab(seed), 40, 0
		shortened := l.IntN(800)
		setWarn := func(c *enforce.Cap) { c.Warn = new(lasting(warn)) }
		own, shared := l.IntN(3), l.IntN(6)
		var memory controllerMemory
		var told []enforce.Plan
		over := map[string]int{} // for how many minutes
		for minute := range 400 {
			off += l.IntN(30) / 29 * (60 + l.IntN(120)) // a pause of the controller
			if minute == shortened {
				warn = 20
			}
			policy := stated{fleet: enforce.Fleet{Interval: time.Second}, list: capList{listed("own", int64(own), setWarn, about("carol")), listed("shared", int64(shared), setWarn, together)}}
			if l.IntN(8) == 0 {
				l.attach(l.IntN(3), l.IntN(2), minute+off)
			}
			if l.IntN(16) == 0 {
				l.detach(l.IntN(3))
			}
			var cluster snapshot.Cluster
			for host := range 2 {
				if l.silent[host]--; l.silent[host] < 0 && l.IntN(60) == 0 {
					l.silent[host] = 1 + l.IntN(9)
				}
				cluster.Hosts = append(cluster.Hosts, l.look(host, noon(minute+off)))
			}
			plan := memory.Judge(policy, cluster, noon(minute+off))
			told = append(told, plan)
			lost := lossesOf(plan, time.Time{})
			for who, n := range lost {
				need, warned := warn, false
				if who.cap == "shared" {
					need = warn / 4
				}
				for at := 0; at <= minute-need && !warned; at++ {
					warned = lossesOf(told[at], noon(minute+off))[who] >= n
				}
				taken += n
				require.True(t, n == 0 || warned, "seed %d, minute %d: %s loses %d by %s", seed, minute, who.user, n, who.cap)
			}
			for name, isOver := range map[string]bool{
				"own":    l.count(func(user int) bool { return user == 2 }) > own,
				"shared": l.count(func(int) bool { return true }) > shared,
			} {
				if l.silent[0] <= 0 && l.silent[1] <= 0 {
					over[name]++
				}
				if !isOver || lost[loss{name, "alice"}]+lost[loss{name, "bob"}]+lost[loss{name, "carol"}] > 0 {
					over[name] = 0
				}
				require.LessOrEqual(t, over[name], 130, "seed %d, minute %d: %s doesn't come due", seed, minute, name)
			}
			l.carryOut(plan)
		}
	}
	require.Greater(t, taken, 2*int(cases))
}

// People who never have more than they may lose nothing, whenever which host answers, and wherever their GPUs move.
func TestPropertyOverTimeHostsThatComeAndGo(t *testing.T) {
	for seed := range proctest.Cases(60) {
		l := newLab(seed)
		policy := stated{list: capList{listed("own", 3), listed("shared", 4, together, about("alice bob")), listed("half", 50, percent)}}
		var memory controllerMemory
		var cluster snapshot.Cluster
		ask := []snapshot.Hostname{"h0", "h1"}
		for second := range 2000 {
			user := l.IntN(3)
			switch l.IntN(6) {
			case 0:
				if l.detach(user); l.IntN(2) == 0 { // it moves at once
					l.attach(user, l.IntN(2), second/60)
				}
			case 1:
				if l.count(func(u int) bool { return u == user }) < 3 && (user == 2 || l.count(func(u int) bool { return u < 2 }) < 4) {
					l.attach(user, l.IntN(2), second/60)
				}
			}
			at := noon(0).Add(time.Duration(second) * time.Second)
			var now snapshot.Cluster
			for host := range 2 {
				if l.silent[host]--; l.silent[host] < 0 && l.IntN(50) == 0 {
					l.silent[host] = 1 + l.IntN(40)
				}
				look := l.look(host, at)
				if second%10 > 0 && !strings.Contains(fmt.Sprint(ask), string(look.Name)) && l.IntN(4) > 0 {
					look = cluster.Hosts[host]
					look.IsNew = false
				} else {
					look.Round = 1 + second/10
				}
				now.Hosts = append(now.Hosts, look)
			}
			cluster = now
			plan := memory.Judge(policy, cluster, at)
			require.Empty(t, items(plan), "seed %d, second %d", seed, second)
			ask = plan.Ask
		}
	}
}

// attachedTo is a host with ten GPUs, of which alice is attached to so many.
func attachedTo(n int) string {
	s := "a | env 1 alice u1001"
	for i := range 10 {
		s += " | dev " + itoa(i)
		if i < n {
			s += " 1@0" + itoa(i)
		}
	}
	return s
}

// Who takes more and more, or pauses for a moment, is warned once and in time of each thing.
func TestWarnedOfEachThing(t *testing.T) {
	policy := stated{all: enforce.Settings{Warn: enforce.Warn{For: 40 * time.Minute}}, list: capList{listed("two", 2)}}
	for _, tt := range []struct {
		name string
		has  map[int]int // GPUs from a minute on, while nothing is taken
		want map[int]int // how many go, by minute
	}{
		{"more is added twice", map[int]int{0: 3, 10: 4, 30: 9}, map[int]int{40: 1, 50: 1, 70: 5}},
		{"a short pause of some of them", map[int]int{0: 5, 38: 3, 39: 5}, map[int]int{40: 3}},
		{"a pause and more", map[int]int{0: 5, 38: 3, 39: 6}, map[int]int{40: 3, 79: 1}},
		{"a long pause of some of them", map[int]int{0: 5, 30: 3, 36: 5}, map[int]int{40: 1, 76: 2}},
		{"fewer", map[int]int{0: 3, 10: 6, 20: 4}, map[int]int{40: 1, 50: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var memory controllerMemory
			has, taken := 0, map[int]int{}
			for minute := range 100 {
				if n, changes := tt.has[minute]; changes {
					has = n
				}
				plan := planText(memory.Judge(policy, parseCluster(t, attachedTo(has)), noon(minute)))
				if n := strings.Count(plan, "detach"); n > 0 {
					taken[minute], has = n, has-n
				}
			}
			require.Equal(t, tt.want, taken)
		})
	}
}

// What got SIGTERM and still runs counts as gone: nothing else is lost in its place.
func TestWhatCannotBeEndedCountsAsGone(t *testing.T) {
	const began = "a | dev 0 | dev 1 | proc 10 - u1001 by:alice started-at:8 0:1 | proc 11 - u1001 by:alice started-at:9 1:1"
	policy := stated{all: enforce.Settings{CountOutside: true}, list: capList{listed("one", 1)}}
	var memory controllerMemory
	plan := memory.Judge(policy, parseCluster(t, began), noon(0))
	require.Equal(t, "a end 11", planText(plan))
	memory.Learn("a", plan.Orders[0].Order, []order.Outcome{{PID: 11, Status: order.StatusSurvived}})
	plan = memory.Judge(policy, parseCluster(t, strings.Replace(began, "10 - u1001 by:alice started-at:8", "12 - u1001 by:alice started-at:10", 1)), noon(0).Add(10*time.Second))
	require.Empty(t, planText(plan))
	require.Len(t, plan.Findings[0].Stuck, 1)
}

// GPU hours count between two looks of a loop, also at times when the cap doesn't act, or while something holds all back.
func TestGPUHoursCountAlways(t *testing.T) {
	loop := enforce.Fleet{Interval: 10 * time.Minute}
	held := enforce.Fleet{Interval: loop.Interval, Limits: safety.Limits{Paused: "a hold"}}
	for name, row := range map[string]struct {
		change func(*enforce.Cap)
		fleet  enforce.Fleet
		hours  float64 // of alice, in seconds, of 1000
		want   string
	}{
		"each person":           {about("alice bob"), loop, 1200, "a detach 0 1; a detach 1 1"},
		"together":              {together, loop, 1200, "a detach 0 1; a detach 1 1; a detach 2 2"},
		"at other times":        {func(c *enforce.Cap) { c.Inactive = true }, loop, 1200, ""},
		"while all is held":     {about("alice bob"), held, 1200, ""},
		"single cycles":         {about("alice bob"), enforce.Fleet{}, 0, ""},
		"who may be in a group": {about("alice?"), loop, 1200, ""},
	} {
		var memory controllerMemory
		policy, got := stated{fleet: row.fleet, list: capList{listed("week", 1000, counts(enforce.CapHours), row.change)}}, ""
		for minute := 0; minute <= 10; minute += 10 {
			cluster := parseCluster(t, "a | env 1 alice u1001 | env 2 bob u1002 | dev 0 1@01 | dev 1 1@02 | dev 2 2@03")
			cluster.Hosts[0].AskedAt, cluster.Hosts[0].IsNew = noon(minute), true
			got = planText(memory.Judge(policy, cluster, noon(minute)))
		}
		require.Equal(t, row.want, got, name)
		require.InDelta(t, row.hours, memory.Hours["week"].Seconds["alice"], 0.001, name)
		memory.Judge(stated{fleet: row.fleet}, parseCluster(t, "a | env 1 alice u1001"), noon(20))
		require.InDelta(t, row.hours, memory.Hours["week"].Seconds["alice"], 0.001, "%s: the cap may come back", name)
	}
}
