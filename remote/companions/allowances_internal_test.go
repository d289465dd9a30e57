package companions

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/rules"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// allowancesOf is what two hosts are told in a cycle, and which hosts are asked again. alice has a GPU on both.
type allowancesOf struct {
	*Allowances
	t      *testing.T
	policy string
	told   map[snapshot.Hostname]*service.Allowance
	asked  *snapshot.Asked // on h1
	more   bool            // alice has GPU 1 of h1, too
	age    time.Duration   // of the look at h2
}

func (a *allowancesOf) cycle(now time.Time, isNew ...snapshot.Hostname) []snapshot.Hostname {
	a.Tell = func(byHost map[snapshot.Hostname]*service.Allowance) { a.told = byHost }
	cluster := snapshot.Cluster{}
	for _, name := range []snapshot.Hostname{"h1", "h2"} {
		s := &snapshot.Snapshot{
			Environments: []snapshot.Environment{{EID: "1", UID: 1001, Username: "alice"}},
			Devices:      []snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(81559), Attachments: []snapshot.Attachment{{EID: "1"}}}, {Index: 1, TotalMemory: snapshot.MiB(81559)}},
		}
		at := now
		if name == "h1" {
			s.Asked = a.asked
			if a.more {
				s.Devices[1].Attachments = s.Devices[0].Attachments
			}
		} else {
			at = now.Add(-a.age)
		}
		cluster.Hosts = append(cluster.Hosts, snapshot.Host{Name: name, Snapshot: s, AskedAt: at, IsNew: slices.Contains(isNew, name)})
	}
	cluster.Hosts = append(cluster.Hosts, snapshot.Host{Name: "h3"})
	file := read(a.t, a.policy)
	round := &controller.Round{Policy: file, Now: now, Cluster: cluster}
	round.Plan, _, _ = rules.Judge(file, cluster, enforce.Memory{}, now)
	_, learned := a.Plan(round, nil)
	require.Empty(a.t, learned.Events)
	slices.Sort(learned.Ask)
	return slices.Compact(learned.Ask)
}

func allowances(t *testing.T, policy string) *allowancesOf {
	return &allowancesOf{Allowances: &Allowances{By: "c1", Interval: 30 * time.Second}, t: t, policy: policy}
}

// TestWhatHostsAreTold: the people there, what counts for their caps, and the rules.
func TestWhatHostsAreTold(t *testing.T) {
	a := allowances(t, "defaults: {max-devices-per-user: 2}\noverrides: [{users: [alice], set: {idle: {after: 2h}}}]\ncaps: [{name: few, users: [bob], gpus: 1}]\n")
	require.Empty(t, a.cycle(guardNoon, "h1", "h2"))
	h1 := a.told["h1"]
	require.Equal(t, []service.Cap{{Rule: "max-devices-per-user", Counts: "gpus", GPUs: []snapshot.DeviceIndex{0, 1}}}, h1.Caps)
	require.Equal(t, []service.CapUse{{Limit: 2, Here: 1, Elsewhere: 1, Hosts: []snapshot.Hostname{"h2"}, GPUs: []snapshot.DeviceIndex{0}}}, h1.People[1001].Caps)
	require.Contains(t, h1.Rules, service.Rule{Key: "max-devices-per-user", Value: "2"})
	require.Contains(t, h1.Rules, service.Rule{Key: "idle", Value: "off"})
	require.Contains(t, h1.People[1001].Rules, service.Rule{Key: "idle", Value: "{after: 2h}"})
	require.Equal(t, int64(90_000), h1.ForMS)
	require.NotContains(t, a.told, snapshot.Hostname("h3"), "it has not answered")

	a.cycle(guardNoon.Add(5*time.Second), "h1", "h2")
	require.Same(t, h1, a.told["h1"], "nothing is new")
	require.Empty(t, a.cycle(guardNoon.Add(30*time.Second), "h1"))
	require.NotSame(t, h1, a.told["h1"], "a third of the lease is over")
	a.more = true
	require.Equal(t, []snapshot.Hostname{"h1"}, a.cycle(guardNoon.Add(31*time.Second), "h1"), "it is told at once of GPUs")
	require.Empty(t, a.cycle(guardNoon.Add(32*time.Second), "h1"))

	exempt := allowances(t, "exempt: {users: [alice]}\ndefaults: {max-devices-per-user: 1}\n")
	exempt.cycle(guardNoon, "h1", "h2")
	require.Empty(t, exempt.told["h1"].People[1001].Caps)
	require.Equal(t, "exempt", exempt.told["h1"].People[1001].Rules[0].Key)
}

// TestWhoAsksIsToldAtOnce: after the hosts were asked again on which they have something.
func TestWhoAsksIsToldAtOnce(t *testing.T) {
	a := allowances(t, "defaults: {max-devices-per-user: 2}\n")
	require.Empty(t, a.cycle(guardNoon, "h1", "h2"))
	a.asked = &snapshot.Asked{Number: 7, People: []snapshot.Asker{{UID: 1001, Username: "alice"}, {UID: 1002, Username: "bob"}}}
	a.age = time.Second
	require.Equal(t, []snapshot.Hostname{"h1"}, a.cycle(guardNoon.Add(time.Second), "h1"), "h2 was just asked")
	require.Equal(t, uint64(7), a.told["h1"].Asked)
	require.Equal(t, int64(0), a.told["h1"].People[1002].Caps[0].Here, "who has nothing is told, too")
	require.Empty(t, a.cycle(guardNoon.Add(2*time.Second), "h1"), "it is told")

	a.asked, a.age = &snapshot.Asked{Number: 8, People: a.asked.People}, 5*time.Second
	require.Equal(t, []snapshot.Hostname{"h1", "h2"}, a.cycle(guardNoon.Add(6*time.Second), "h1"))
	require.Equal(t, uint64(7), a.told["h1"].Asked, "not yet")
	require.Equal(t, []snapshot.Hostname{"h1"}, a.cycle(guardNoon.Add(6200*time.Millisecond), "h1"), "it waits for h2")
	require.Equal(t, uint64(7), a.told["h1"].Asked)
	a.age = 0
	require.Equal(t, []snapshot.Hostname{"h1"}, a.cycle(guardNoon.Add(6400*time.Millisecond), "h1", "h2"))
	require.Equal(t, uint64(8), a.told["h1"].Asked)

	a.asked, a.age = &snapshot.Asked{Number: 9, People: a.asked.People}, 5*time.Second
	a.cycle(guardNoon.Add(20*time.Second), "h1")
	a.cycle(guardNoon.Add(21500*time.Millisecond), "h1")
	require.Equal(t, uint64(9), a.told["h1"].Asked, "h2 doesn't answer, and is as it was seen last")
	require.GreaterOrEqual(t, a.told["h1"].People[1001].Caps[0].SeenMS, int64(5000))
}

// TestTellWaits: a host is told what its waits get, and nothing of other hosts.
func TestTellWaits(t *testing.T) {
	all := []enforce.Offer{
		{Host: "a", ID: "w1", GPUs: []snapshot.DeviceIndex{2, 3}},
		{Host: "a", ID: "w2", Possible: 1},
		{Host: "a", ID: "w3"},
		{Host: "b", ID: "w4", GPUs: []snapshot.DeviceIndex{0}},
	}
	var told service.Allowance
	tellWaits(&told, all, "a")
	require.Equal(t, map[string][]snapshot.DeviceIndex{"w1": {2, 3}}, told.Offers)
	require.Equal(t, map[string]int{"w2": 1, "w3": 0}, told.Possible)
}

// Hosts are told who may reserve what, and what these people have reserved elsewhere.
func TestBookingOf(t *testing.T) {
	file, err := policy.Parse("p.yaml", []byte("reservations:\n- {users: [alice], gpus: 2, at-once: 1}\n- {users: [\"%staff\"], gpus: 1}\n"+
		"caps: [{gpus: 4}, {gpus: 1, of: {model: X*}}, {gpus: 3, per: host}, {gpus: 9, of: {hosts: [a]}}, {gpus: 9, together: true}]\n"))
	require.NoError(t, err)
	file.AskUnix(func(user, _ string) (member, known bool) { return false, user != "carol" })
	reserved := func(user snapshot.Username, id string) *snapshot.Snapshot {
		return &snapshot.Snapshot{Devices: []snapshot.Device{{Name: "X1", TotalMemory: snapshot.MiB(1)}, {Name: "Y1", TotalMemory: snapshot.MiB(1), Index: 1}}, Reservations: []snapshot.Reservation{{ID: id, Username: user, GPUs: 2, From: guardNoon, Until: guardNoon.Add(time.Hour), Reason: strings.Repeat("x", 200)}}}
	}
	round := &controller.Round{Policy: file}
	round.Cluster.Hosts = []snapshot.Host{{Name: "a", Snapshot: reserved("alice", "1")}, {Name: "b", Snapshot: reserved("alice", "2")}, {Name: "c", Snapshot: reserved("bob", "3")}, {Name: "d"}}
	round.Plan, _, _ = rules.Judge(file, round.Cluster, enforce.Memory{}, guardNoon)
	round.Cluster.Hosts[0].Snapshot.Asked = &snapshot.Asked{People: []snapshot.Asker{{UID: 1, Username: "alice"}, {UID: 2, Username: "bob"}, {UID: 3, Username: "carol"}}}
	a := allowances(t, "")
	a.rules = make(map[*enforce.Settings][]service.Rule)
	told := a.of(round, &round.Cluster.Hosts[0])
	elsewhere := func(gpus int) []snapshot.Reservation {
		return []snapshot.Reservation{{GPUs: gpus, From: guardNoon, Until: guardNoon.Add(time.Hour)}} // all that the rule and caps need
	}
	require.Equal(t, &service.Reservable{ReservationRule: snapshot.ReservationRule{GPUs: 2, AtOnce: 1, Warn: 30 * time.Minute}, Elsewhere: elsewhere(0)}, told.People[1].Reservable)
	var booked [][]snapshot.Reservation
	for _, u := range told.People[1].Caps {
		booked = append(booked, u.Booked)
	}
	require.Equal(t, [][]snapshot.Reservation{elsewhere(2), elsewhere(1), nil, nil, nil}, booked, "%v", told.Caps)
	require.Nil(t, told.People[2].Reservable, "nothing")
	require.Equal(t, &service.Reservable{Unknown: true}, told.People[3].Reservable)
}

// TestPeopleThatAreTold: always in the same order, of very many those who wait or asked.
func TestPeopleThatAreTold(t *testing.T) {
	s := &snapshot.Snapshot{
		Waits: []snapshot.Wait{{UID: 9001}}, Asked: &snapshot.Asked{People: []snapshot.Asker{{UID: 9002}}},
	}
	for uid := range snapshot.UID(3) {
		s.Environments = append(s.Environments, snapshot.Environment{UID: 1003 - uid})
	}
	require.Equal(t, []snapshot.UID{1001, 1002, 1003, 9001, 9002}, slices.Sorted(maps.Keys(peopleOf(s))))
	for uid := range snapshot.UID(2 * maxPeople) {
		s.Environments = append(s.Environments, snapshot.Environment{UID: 1001 + uid})
	}
	told := slices.Sorted(maps.Keys(peopleOf(s)))
	require.Len(t, told, maxPeople)
	require.Equal(t, []snapshot.UID{1001, 1002}, told[:2])
	require.Equal(t, []snapshot.UID{9001, 9002}, told[maxPeople-2:])
}
