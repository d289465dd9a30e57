package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// whileWaiting has a cap hold as far as somebody waits.
func whileWaiting(user snapshot.Username) func(*enforce.Cap) {
	return func(c *enforce.Cap) {
		c.Warn = &enforce.Warn{For: 30 * time.Minute}
		c.Waiting = func(u snapshot.Username) enforce.Membership {
			if u == user {
				return enforce.Member
			}
			return enforce.NotMember
		}
	}
}

const guests = "a | env 1 alice u1001 | env 2 bob u1002 | dev 0 1@01 | dev 1 2@02 | dev 2 2@03"

// withWaits is a cluster of one host on which commands wait.
func withWaits(t *testing.T, text string, waits ...snapshot.Wait) snapshot.Cluster {
	c := parseCluster(t, text)
	c.Hosts[0].Snapshot.Waits = waits
	return c
}

func waitOf(gpus int) snapshot.Wait {
	return snapshot.Wait{ID: "w", UID: 1003, Username: "carol", GPUs: gpus}
}

// TestNothingIsTakenForWhatIsNoNeed: each row differs in a little from a wait for which somebody loses a GPU.
func TestNothingIsTakenForWhatIsNoNeed(t *testing.T) {
	owners := listed("owners", 0, together, about("alice bob"), whileWaiting("carol"))
	carol := waitOf(1)
	change := func(f func(*snapshot.Wait)) []snapshot.Wait {
		w := carol
		f(&w)
		return []snapshot.Wait{w}
	}
	busy := guests + " | proc 10 1 u1001 by:alice 0:1 | proc 11 2 u1002 by:bob 1:1 2:1"
	for _, tt := range []struct {
		name    string
		list    capList
		cluster string
		waits   []snapshot.Wait
		want    string
	}{
		{"she waits", nil, guests, []snapshot.Wait{carol}, "a detach 2 2"},
		{"the job on one GPU goes, and not that on two", nil, busy, []snapshot.Wait{carol}, "a detach 0 1; a end 10"},
		{"the GPU that suits", nil, guests, change(func(w *snapshot.Wait) { w.Suits = []snapshot.DeviceIndex{0} }), "a detach 0 1"},
		{"no one waits", nil, guests, []snapshot.Wait{}, ""},
		{"it isn't known who waits", nil, guests, nil, ""},
		{"somebody else waits", nil, guests, change(func(w *snapshot.Wait) { w.Username = "dave" }), ""},
		{"an account without a name", nil, guests, change(func(w *snapshot.Wait) { w.Username = "" }), ""},
		{"root waits", nil, guests, change(func(w *snapshot.Wait) { w.UID = 0 }), ""},
		{"she let an offer pass", nil, guests, change(func(w *snapshot.Wait) { w.Passed = true }), ""},
		{"no GPU suits", nil, guests, change(func(w *snapshot.Wait) { w.Suits = []snapshot.DeviceIndex{7} }), ""},
		{"more than there are", nil, guests, change(func(w *snapshot.Wait) { w.GPUs = 4 }), ""},
		{"more than Exactly chooses", nil, guests, change(func(w *snapshot.Wait) { w.GPUs = 1000 }), ""},
		{"one is free", nil, guests + " | dev 3", []snapshot.Wait{carol}, ""},
		{"one is free, offered to somebody else", nil, guests + " | dev 3", []snapshot.Wait{carol, {ID: "x", UID: 1004, Username: "dave", GPUs: 1, Offered: []snapshot.DeviceIndex{3}}}, "a detach 2 2"},
		{"one is free, offered to her", nil, guests + " | dev 3", change(func(w *snapshot.Wait) { w.Offered = []snapshot.DeviceIndex{3} }), ""},
		{"one is free, but has failed", nil, guests + " | dev 3 failed", []snapshot.Wait{carol}, "a detach 2 2"},
		{"one is free, and who waits before her let an offer pass", nil, guests + " | dev 3", []snapshot.Wait{{UID: 1004, Username: "dave", GPUs: 1, Passed: true}, carol}, ""},
		{"one is free, and who waits before her may have none", capList{listed("daves", 0, about("dave"))}, guests + " | dev 3", []snapshot.Wait{{UID: 1004, Username: "dave", GPUs: 1}, carol}, ""},
		{"one is free, and who waits before her waits for more than there are", nil, guests + " | dev 3", []snapshot.Wait{{UID: 1004, Username: "dave", GPUs: 100}, carol}, ""},
		{"one is free, for whom waits before her", nil, guests + " | dev 3", []snapshot.Wait{{UID: 1004, Username: "dave", GPUs: 1}, carol}, "a detach 2 2"},
		{"all are used by outsiders, too", nil, "a | env 1 alice u1001 | env 5 dave u1004 | dev 0 1@01 5@02", []snapshot.Wait{carol}, ""},
		{"another cap allows her none", capList{listed("carols", 0, about("carol"))}, guests, []snapshot.Wait{carol}, ""},
		{"she may be under such a cap", capList{listed("carols", 0, about("carol?"))}, guests, []snapshot.Wait{carol}, ""},
		{"she waits twice, and may have one", capList{listed("carols", 1, about("carol"))}, guests, []snapshot.Wait{carol, carol}, "a detach 2 2"},
		{"she waits twice, and may have two", capList{listed("carols", 2, about("carol"))}, guests, []snapshot.Wait{carol, carol}, "a detach 1 2; a detach 2 2"},
		{"another cap takes one anyway", capList{listed("bobs", 1, about("bob"))}, guests, []snapshot.Wait{carol}, "a detach 2 2"},
		{"a MIG GPU isn't taken", nil, "a | env 1 alice u1001 | dev 0 mig 1@01", []snapshot.Wait{carol}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			policy := stated{list: append(tt.list, owners)}
			var memory controllerMemory
			cluster := withWaits(t, tt.cluster, tt.waits...)
			for i := range cluster.Hosts[0].Snapshot.Waits {
				w := &cluster.Hosts[0].Snapshot.Waits[i]
				w.ID = fmt.Sprint(w.ID, i)
			}
			memory.Judge(policy, cluster, noon(0))
			require.Equal(t, tt.want, planText(memory.Judge(policy, cluster, noon(30))))
		})
	}
}

// TestWaitsOfSeveral who share a cap take no more than all of them may have.
func TestWaitsOfSeveral(t *testing.T) {
	owners := listed("owners", 0, together, about("alice bob"), whileWaiting("carol"))
	all := owners.Waiting
	owners.Waiting = func(u snapshot.Username) enforce.Membership { return max(all(u), all("carol")) }
	dave := func(id string) snapshot.Wait { return snapshot.Wait{ID: id, UID: 1004, Username: "dave", GPUs: 1} }
	waits := []snapshot.Wait{waitOf(1), dave("x"), dave("y")}
	for limit, want := range []string{"", "a detach 2 2", "a detach 1 2; a detach 2 2"} {
		policy := stated{list: capList{listed("shared", int64(limit), together, about("carol dave")), owners}}
		var memory controllerMemory
		cluster := withWaits(t, guests, waits...)
		memory.Judge(policy, cluster, noon(0))
		require.Equal(t, want, planText(memory.Judge(policy, cluster, noon(30))))
		if limit == 1 {
			freed := withWaits(t, strings.TrimSuffix(guests, " 2@03"), waits...)
			require.Empty(t, memory.Judge(policy, freed, noon(31)).Findings, "nor before somebody has it")
		}
	}
}

// TestAWaitIsItsUsers: a wait of somebody else with the same id, which has what it needs on another host, changes nothing.
func TestAWaitIsItsUsers(t *testing.T) {
	policy := stated{list: capList{listed("owners", 0, together, about("alice bob"), whileWaiting("carol"))}}
	cluster := withWaits(t, guests+"\nb | dev 0", waitOf(1))
	cluster.Hosts[1].Snapshot.Waits = []snapshot.Wait{{ID: "w", UID: 1004, Username: "mallory", GPUs: 1}}
	var memory controllerMemory
	require.Len(t, memory.Judge(policy, cluster, noon(0)).Findings, 1)
	cluster.Hosts[1].Snapshot.Waits[0].UID, cluster.Hosts[1].Snapshot.Waits[0].Username = 1003, "carol"
	require.Empty(t, memory.Judge(policy, cluster, noon(1)).Findings, "her own wait is served there")
}

// TestAWarningCountsEachGPUOnce: of what people share, before anything of it is taken.
func TestAWarningCountsEachGPUOnce(t *testing.T) {
	policy := stated{list: capList{listed("owners", 0, together, about("alice bob"), whileWaiting("carol"))}}
	var memory controllerMemory
	plan := memory.Judge(policy, withWaits(t, guests, waitOf(2)), noon(0))
	require.Len(t, plan.Findings, 1)
	require.Equal(t, "User bob is to give back GPUs: carol waits for 2 GPUs, those who share cap owners have 3 GPUs, and 0 GPUs are allowed", plan.Findings[0].String())
	require.Equal(t, []enforce.CountedGPUs{{Host: "a", GPUs: []snapshot.DeviceIndex{0, 1, 2}}}, plan.Findings[0].Cap.Where)
}

// TestAWaitThatEndsEndsTheWarning: what was taken for somebody is taken once.
func TestAWaitThatEndsEndsTheWarning(t *testing.T) {
	policy := stated{list: capList{listed("owners", 0, together, about("alice bob"), whileWaiting("carol"))}}
	waits, none := withWaits(t, guests, waitOf(1)), withWaits(t, guests)
	var memory controllerMemory
	plan := memory.Judge(policy, waits, noon(0))
	require.Len(t, plan.Findings, 1)
	require.Equal(t, "User bob is to give back GPUs: carol waits for 1 GPU, those who share cap owners have 3 GPUs, and 0 GPUs are allowed", plan.Findings[0].String())
	require.Equal(t, []snapshot.DeviceIndex{2}, plan.Offers[0].GPUs)
	require.Empty(t, memory.Judge(policy, none, noon(10)).Findings, "she has gone")
	require.Empty(t, planText(memory.Judge(policy, waits, noon(35))), "a new wait is warned for again")

	require.Equal(t, "a detach 2 2", planText(memory.Judge(policy, waits, noon(65))))
	const free = "a | env 1 alice u1001 | env 2 bob u1002 | dev 0 1@01 | dev 1 2@02 | dev 2"
	freed := withWaits(t, free, snapshot.Wait{ID: "first", UID: 1004, Username: "dave", GPUs: 1}, waitOf(1))
	plan = memory.Judge(policy, freed, noon(66))
	require.Empty(t, plan.Findings, "it is hers, though somebody else waits longer")
	require.Equal(t, []snapshot.DeviceIndex{2}, plan.Offers[0].GPUs, "and the host is told so")
	passed := waitOf(1)
	passed.Passed = true
	afterwards := memory
	require.Empty(t, afterwards.Judge(policy, withWaits(t, free, passed), noon(66).Add(30*time.Second)).Offers, "until she lets it pass")
	require.NotEmpty(t, memory.Judge(policy, freed, noon(68)).Findings, "and if she doesn't get it, a warning begins again")
}

// TestAHostOfManyWaits is judged in a moment, whatever it says.
func TestAHostOfManyWaits(t *testing.T) {
	text, all := "a | env 1 alice u1001", make([]snapshot.DeviceIndex, 1024)
	for i := range all {
		all[i] = snapshot.DeviceIndex(i)
		text += fmt.Sprintf(" | dev %d", i) + []string{" 1@01", ""}[i%2]
	}
	for name, change := range map[string]func(*snapshot.Wait){
		"all are offered to the last": func(w *snapshot.Wait) {
			if w.ID == "w2047" {
				w.Offered = all
			}
		},
		"for 63 of theirs": func(w *snapshot.Wait) { w.GPUs = 63 },
	} {
		t.Run(name, func(t *testing.T) {
			var waits []snapshot.Wait
			for i := range snapshot.MaxWaits {
				w := snapshot.Wait{ID: fmt.Sprint("w", i), UID: 1003, Username: "carol", GPUs: 600}
				change(&w)
				waits = append(waits, w)
			}
			c := withWaits(t, text, waits...)
			policy := stated{list: capList{listed("owners", 0, together, about("alice"), whileWaiting("carol"))}}
			var memory controllerMemory
			begun := time.Now()
			memory.Judge(policy, c, noon(0))
			require.Less(t, time.Since(begun), time.Minute, "it took hours")
		})
	}
}

// TestAHostOfManyReservations is it, too.
func TestAHostOfManyReservations(t *testing.T) {
	text := "a"
	for i := range 500 {
		text += fmt.Sprintf(" | env %d u%d u%d", i+1, i+5000, i+5000)
	}
	for i := range 1024 {
		text += fmt.Sprintf(" | dev %d %d@01", i, i%500+1)
	}
	var list []snapshot.Reservation
	for i := range snapshot.MaxReservations {
		list = append(list, bookedBy("carol", 1024, -i-1, 60+i, func(b *snapshot.Reservation) { b.ID, b.Known = fmt.Sprint(i), 1024 }))
	}
	var memory controllerMemory
	begun := time.Now()
	require.NotEmpty(t, memory.Judge(stated{}, reservedOn(t, text, 0, list...), noon(0)).Findings)
	require.Less(t, time.Since(begun), time.Minute)
}
