package rules_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
)

// bookedBy is a reservation of GPUs from a minute after noon until another one, made an hour before noon on a host of 4.
func bookedBy(user snapshot.Username, gpus, from, until int, change ...func(*snapshot.Reservation)) snapshot.Reservation {
	uids := map[snapshot.Username]snapshot.UID{"alice": 1001, "bob": 1002, "carol": 1003}
	b := snapshot.Reservation{
		ID: string(user), UID: uids[user], Username: user, GPUs: gpus, From: noon(from), Until: noon(until), Made: noon(-60), Known: 4,
	}
	for _, f := range change {
		f(&b)
	}
	return b
}

// reservedOn is a look at noon and some minutes at hosts with these reservations, each of all hosts.
func reservedOn(t *testing.T, text string, minute int, list ...snapshot.Reservation) snapshot.Cluster {
	c := parseCluster(t, text)
	for i := range c.Hosts {
		if s := c.Hosts[i].Snapshot; s != nil {
			s.Skew, s.Reservations = new(time.Duration), list
		}
		c.Hosts[i].AskedAt, c.Hosts[i].IsNew = noon(minute), true
	}
	return c
}

func madeAt(minute int) func(*snapshot.Reservation) {
	return func(b *snapshot.Reservation) { b.Made = noon(minute) }
}

func endedAt(minute int) func(*snapshot.Reservation) {
	return func(b *snapshot.Reservation) { b.Ended = new(noon(minute)) }
}

// judgedUntil judges each minute from noon on, and returns what is planned in the last one.
func judgedUntil(t *testing.T, policy stated, last int, look func(minute int) snapshot.Cluster) (plan enforce.Plan) {
	var memory controllerMemory
	for minute := range last + 1 {
		plan = memory.Judge(policy, look(minute), noon(minute))
		if minute < last {
			require.Empty(t, planText(plan), "minute %d", minute)
		}
	}
	return plan
}

const (
	// on which bob has three of four GPUs, and carol one
	bobs    = "a | env 2 bob u1002 | env 3 carol u1003 | dev 0 2@01 | dev 1 2@02 | dev 2 2@03 | dev 3 3@04"
	alices  = "a | env 1 alice u1001 | env 2 bob u1002 | dev 0 1@01 | dev 1 1@02 | dev 2 2@03 | dev 3 2@04"
	allhers = "a | env 1 alice u1001 | dev 0 1@01 | dev 1 1@02 | dev 2 1@03 | dev 3 1@04"
)

// At its start what is reserved is free. Each row differs a little from one in which somebody loses GPUs.
func TestReservations(t *testing.T) {
	for _, tt := range []struct {
		name    string
		cluster string
		list    []snapshot.Reservation
		at      int // the minute of which want is
		want    string
		change  func(*stated, *snapshot.Snapshot)
	}{
		{"two for alice", bobs, []snapshot.Reservation{bookedBy("alice", 2, 40, 90)}, 40, "a detach 1 2; a detach 2 2", nil},
		{"one for alice", bobs, []snapshot.Reservation{bookedBy("alice", 1, 40, 90)}, 40, "a detach 2 2", nil},
		{"all for alice", bobs, []snapshot.Reservation{bookedBy("alice", 4, 40, 90)}, 40, "a detach 0 2; a detach 1 2; a detach 2 2; a detach 3 3", nil},
		{"booked for now", bobs, []snapshot.Reservation{bookedBy("alice", 1, 0, 90)}, 30, "a detach 2 2", nil},
		{"two people's, one after the other", bobs, []snapshot.Reservation{bookedBy("alice", 1, 40, 90), bookedBy("carol", 1, 35, 90)}, 40, "a detach 2 2", nil},
		{"what runs outside of environments", "a | dev 0 | dev 1 | dev 2 | dev 3 | proc 10 - u1002 by:bob 0:1 1:1 2:1 | proc 11 - u1003 by:carol 3:1", []snapshot.Reservation{bookedBy("alice", 1, 40, 90)}, 40, "a end 11", func(s *stated, _ *snapshot.Snapshot) { s.all.CountOutside = true }},
		{"a GPU that fails is missing from it", bobs + " failed", []snapshot.Reservation{bookedBy("alice", 2, 40, 90)}, 40, "a detach 2 2", nil},
		{"not while a GPU that she shares would free nothing", "a | env 1 alice u1001 | env 2 bob u1002 | dev 0 1@01 2@05 | dev 1 2@02 | dev 2 2@03 | dev 3 2@04", []snapshot.Reservation{bookedBy("alice", 1, 0, 90)}, 30, "a detach 3 2", nil},
		{"her own beyond the reservation, and not what is within", allhers, []snapshot.Reservation{bookedBy("carol", 2, 40, 90), bookedBy("alice", 1, 0, 90)}, 40, "a detach 2 1; a detach 3 1", nil},

		{"before it starts", bobs, []snapshot.Reservation{bookedBy("alice", 2, 40, 90)}, 39, "", nil},
		{"after it ended", bobs, []snapshot.Reservation{bookedBy("alice", 2, -90, 0)}, 90, "", nil},
		{"it was cancelled, or lapsed", bobs, []snapshot.Reservation{bookedBy("alice", 2, 0, 900, endedAt(-1))}, 90, "", nil},
		{"there is none", bobs, []snapshot.Reservation{}, 90, "", nil},
		{"that is unknown", bobs, nil, 90, "", nil},
		{"its clock is unknown", bobs, []snapshot.Reservation{bookedBy("alice", 2, 0, 900)}, 90, "", func(_ *stated, s *snapshot.Snapshot) { s.Skew = nil }},
		{"she has it", alices, []snapshot.Reservation{bookedBy("alice", 2, 0, 900)}, 90, "", nil},
		{"others leave enough", bobs, []snapshot.Reservation{bookedBy("alice", 1, 0, 900, func(b *snapshot.Reservation) { b.Known = 5 })}, 90, "", nil},
		{"her own", allhers, []snapshot.Reservation{bookedBy("alice", 1, 0, 900)}, 90, "", nil},
		{"two GPUs of it failed", "a | env 2 bob u1002 | dev 0 2@01 | dev 1 2@02 | dev 2 failed | dev 3 failed", []snapshot.Reservation{bookedBy("alice", 2, 0, 900)}, 90, "", nil},
		{"bob is exempt", bobs, []snapshot.Reservation{bookedBy("alice", 1, 0, 900)}, 90, "", func(s *stated, _ *snapshot.Snapshot) {
			s.exempt = func(w enforce.Subject) bool { return w.User == "bob" }
		}},
		{"people are exempt from the rule", bobs, []snapshot.Reservation{bookedBy("alice", 2, 0, 900)}, 90, "", func(s *stated, _ *snapshot.Snapshot) {
			s.asked = func(q enforce.Query, s *enforce.Settings) { s.IgnoreReservations = q.User != "" }
		}},
		{"the host is", bobs, []snapshot.Reservation{bookedBy("alice", 2, 0, 900)}, 90, "", func(s *stated, _ *snapshot.Snapshot) {
			s.asked = func(q enforce.Query, s *enforce.Settings) { s.IgnoreReservations = q.User == "" }
		}},
		{"by the host's own clock it hasn't begun", bobs, []snapshot.Reservation{bookedBy("alice", 2, 40, 90)}, 60, "", func(_ *stated, s *snapshot.Snapshot) {
			s.Skew = new(-25 * time.Minute)
		}},
		{"by the host's own clock it has", bobs, []snapshot.Reservation{bookedBy("alice", 2, 55, 90)}, 30, "a detach 1 2; a detach 2 2", func(_ *stated, s *snapshot.Snapshot) {
			s.Skew = new(25 * time.Minute)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			policy := stated{}
			look := func(minute int) snapshot.Cluster {
				c := reservedOn(t, tt.cluster, minute, tt.list...)
				if tt.change != nil {
					tt.change(&policy, c.Hosts[0].Snapshot)
				}
				return c
			}
			look(0)
			require.Equal(t, tt.want, planText(judgedUntil(t, policy, tt.at, look)))
		})
	}
}

// Of a reservation that takes the ID of a cancelled one, people are warned as of any other.
func TestAReservationWithAnEarlierID(t *testing.T) {
	look := func(minute int) snapshot.Cluster {
		b := bookedBy("alice", 1, 0, 900)
		if minute > 31 {
			b = bookedBy("alice", 2, 32, 900, madeAt(32))
		}
		return reservedOn(t, "a | env 2 bob u1002 | dev 0 2@01 | dev 1 2@02 | dev 2 2@03 | dev 3", minute, b)
	}
	require.Equal(t, "a detach 2 2", planText(judgedUntil(t, stated{}, 62, look)))
}

// What somebody holds within an own reservation counts for no cap that people share, and for their own.
func TestCapsBesideReservations(t *testing.T) {
	all := listed("all", 1, together)
	waiting := listed("waiting", 0, together, about("alice"), whileWaiting("carol"))
	for _, tt := range []struct {
		name string
		list capList
		gpus int // that alice has reserved
		want string
	}{
		{"nothing is reserved", capList{all}, 0, "a detach 1 1; a detach 2 2; a detach 3 2"},
		{"two are reserved", capList{all}, 2, "a detach 3 2"},
		{"one is", capList{all}, 1, "a detach 2 2; a detach 3 2"},
		{"a cap of each person", capList{listed("each", 1)}, 2, "a detach 1 1; a detach 3 2"},
		{"while somebody waits", capList{waiting}, 0, "a detach 1 1"},
		{"while somebody waits, two are reserved", capList{waiting}, 2, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var memory controllerMemory
			look := func(minute int) snapshot.Cluster {
				c := reservedOn(t, alices, minute, bookedBy("alice", max(1, tt.gpus), 0, 900))
				c.Hosts[0].Snapshot.Waits = []snapshot.Wait{waitOf(1)}
				if tt.gpus == 0 {
					c.Hosts[0].Snapshot.Reservations = []snapshot.Reservation{}
				}
				return c
			}
			policy := stated{list: tt.list}
			plan := memory.Judge(policy, look(0), noon(0))
			if strings.HasPrefix(tt.name, "while") {
				plan = memory.Judge(policy, look(30), noon(30))
			}
			require.Equal(t, tt.want, planText(plan))
		})
	}
}

// People are told who has reserved; owners are told what they lack, or what is one too many, once.
func TestOwnersAreTold(t *testing.T) {
	policy := stated{fleet: enforce.Fleet{NotifyUsers: true}, booking: map[snapshot.Username]*snapshot.ReservationRule{"alice": {AtOnce: 1}}}
	told := func(minute int, memory *controllerMemory, c snapshot.Cluster) (lines []string) {
		memory.Judge(policy, c, noon(minute))
		for i := range memory.events {
			if memory.events[i].Kind == enforce.EventNotify {
				lines = append(lines, string(memory.events[i].Finding.User)+": "+memory.events[i].Finding.Line())
			}
		}
		return lines
	}
	lacksAll := []string{"alice: User alice: reservation alice lacks 2 of its 2 GPUs: too few GPUs of this host work or are judged"}
	for _, tt := range []struct {
		name, cluster string
		lists         [][]snapshot.Reservation // of each host
		want          []string
	}{
		{"a warning", bobs, [][]snapshot.Reservation{{bookedBy("alice", 2, 20, 90)}}, []string{
			"bob: User bob is to give back GPUs: alice has reserved 2 GPUs from Fri 2026-11-20 12:20 UTC to Fri 2026-11-20 13:30 UTC; others have 4 GPUs here, and 2 GPUs are left",
		}},
		{"none is too early", bobs, [][]snapshot.Reservation{{bookedBy("alice", 2, 32, 90)}}, nil},
		{"a GPU that failed", "a | dev 0 | dev 1 failed | dev 2 failed | dev 3 failed", [][]snapshot.Reservation{{bookedBy("alice", 2, 20, 90)}}, lacksAll},
		{"one that CUDA can't use", "a | dev 0 | dev 1 failed | dev 2 unusable | dev 3 failed", [][]snapshot.Reservation{{bookedBy("alice", 2, 20, 90)}}, lacksAll},
		{"one of which it is unknown which GPU it is", "a | dev 0 | dev 1 failed | dev 2 who? | dev 3 failed", [][]snapshot.Reservation{{bookedBy("alice", 2, 20, 90)}}, lacksAll},
		{"one of three failed, and others may have one", "a | env 2 bob u1002 | dev 0 2@01 | dev 1 | dev 2 failed", [][]snapshot.Reservation{{bookedBy("alice", 2, 0, 90, func(b *snapshot.Reservation) { b.Known = 3 })}}, []string{
			"alice: User alice: reservation alice lacks 1 of its 2 GPUs: too few GPUs of this host work or are judged",
		}},
		{"none failed, and others that have reserved come later", "a | dev 0 | dev 1 | dev 2 | dev 3", [][]snapshot.Reservation{{
			bookedBy("bob", 2, -60, 10), bookedBy("alice", 2, 10, 20, madeAt(-50)), bookedBy("carol", 2, 20, 90, madeAt(-40)),
		}}, nil},
		{"and of reservations that overlap the one that was made last", "a | dev 0 | dev 1 | dev 2 failed | dev 3 failed", [][]snapshot.Reservation{{
			bookedBy("bob", 2, 10, 30), bookedBy("alice", 2, 0, 90, madeAt(-50)), bookedBy("carol", 1, 30, 90, madeAt(-40)),
		}}, []string{
			"alice: User alice: reservation alice lacks 2 of its 2 GPUs: too few GPUs of this host work or are judged",
			"carol: User carol: reservation carol lacks 1 of its 1 GPU: too few GPUs of this host work or are judged",
		}},
		{"one too many", bobs + "\nb | dev 0", [][]snapshot.Reservation{{bookedBy("alice", 2, 20, 90)}, {bookedBy("alice", 1, 400, 490, func(b *snapshot.Reservation) { b.Made = noon(-5); b.ID = "second" })}}, []string{
			"alice: User alice: reservation second is one too many: you have 1 reservation, and 1 may be at once, on all hosts together: ask again after Fri 2026-11-20 13:30 UTC",
			"bob: User bob is to give back GPUs: alice has reserved 2 GPUs from Fri 2026-11-20 12:20 UTC to Fri 2026-11-20 13:30 UTC; others have 4 GPUs here, and 2 GPUs are left",
		}},
		{"one lapsed, another one two hours ago, and one was cancelled", "a | dev 0", [][]snapshot.Reservation{{
			bookedBy("alice", 1, -60, 60, endedAt(-30), func(b *snapshot.Reservation) { b.Lapsed = true }),
			bookedBy("bob", 1, -160, 60, endedAt(-120), func(b *snapshot.Reservation) { b.Lapsed = true }), bookedBy("carol", 1, -60, 60, endedAt(-30)),
		}}, []string{"alice: User alice: reservation alice has lapsed: none of its GPUs was attached or used for 30 minutes"}},
		{"a second one by root", "a | dev 0\nb | dev 0", [][]snapshot.Reservation{{bookedBy("alice", 1, 400, 490)}, {bookedBy("alice", 1, 400, 490, func(b *snapshot.Reservation) { b.ByRoot = true })}}, nil},
		{"a second one after the first ended", "a | dev 0\nb | dev 0", [][]snapshot.Reservation{{bookedBy("alice", 1, -90, -30, endedAt(-30))}, {bookedBy("alice", 1, 400, 490)}}, nil},
		{"no rule says how many", "a | dev 0\nb | dev 0", [][]snapshot.Reservation{{bookedBy("bob", 1, 400, 490)}, {bookedBy("bob", 1, 400, 490)}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var memory controllerMemory
			look := func(minute int) snapshot.Cluster {
				c := reservedOn(t, tt.cluster, minute)
				for i, list := range tt.lists {
					c.Hosts[i].Snapshot.Reservations, c.Hosts[i].Snapshot.UTCOffset = list, new(0)
				}
				return c
			}
			require.Equal(t, tt.want, told(0, &memory, look(0)))
			require.Empty(t, told(1, &memory, look(1)), "once")
		})
	}
}

// TestMessagesToOwners: what is wrong is said to the owner, with what helps.
func TestMessagesToOwners(t *testing.T) {
	cluster := reservedOn(t, "a | dev 0 | dev 1 | dev 2 failed | dev 3 failed", 0, bookedBy("alice", 2, 20, 90), bookedBy("bob", 1, 20, 90, madeAt(-50)))
	plan := evaluate(stated{}, cluster, noon(0))
	var told []string
	for i := range plan.Findings {
		for _, m := range notify.Messages(&plan.Findings[i], notify.NewRecipients(cluster), noon(0)) {
			told = append(told, m.Shown()+"\n"+m.Advice)
		}
	}
	slices.Sort(told)
	require.Equal(t, []string{
		"Your reservation alice lacks 1 of its 2 GPUs: too few GPUs of this host work or are judged.\nThe others are kept for you.\n" +
			"Use another host for what it lacks, or cancel it: genv reserve --cancel alice",
		"Your reservation bob lacks 1 of its 1 GPU: too few GPUs of this host work or are judged.\nNone can be kept for you while that lasts.\n" +
			"Use another host for what it lacks, or cancel it: genv reserve --cancel bob",
	}, told)
}

// A host is named of which the clock is off.
func TestReservationsOfAHostWithAnotherClock(t *testing.T) {
	for minutes, want := range map[int]bool{0: false, 1: false, 2: true, -3: true} {
		c := reservedOn(t, bobs, 0, bookedBy("alice", 2, 20, 90))
		c.Hosts[0].Snapshot.Skew = new(time.Duration(minutes) * time.Minute)
		plan := evaluate(stated{}, c, noon(0))
		require.Equal(t, want, len(plan.Notes) == 1 && strings.Contains(plan.Notes[0].Text, "its clock differs from this machine's by about"), minutes)
	}
}

// TestASingleMachineIsAskedAgain when a warning is over between two ticks. It has no name.
func TestASingleMachineIsAskedAgain(t *testing.T) {
	var memory controllerMemory
	judged := func(minute, asked int) enforce.Plan {
		c := reservedOn(t, bobs, asked, bookedBy("alice", 3, 0, 60, madeAt(0)))
		c.Hosts[0].Name, c.Hosts[0].IsNew = "", minute == asked
		return memory.Judge(stated{fleet: enforce.Fleet{Interval: time.Hour}}, c, noon(minute))
	}
	require.Empty(t, judged(0, 0).Ask)
	require.Len(t, judged(30, 0).Ask, 1)
	require.NotEmpty(t, planText(judged(31, 31)))
}
