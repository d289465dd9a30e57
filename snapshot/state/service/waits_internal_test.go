package service

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/state/change"
)

// waitOf is a wait for an offer of some GPUs.
func waitOf(t *testing.T, id string, uid snapshot.UID, gpus int, since time.Duration) *wait {
	n := noted{Wait: snapshot.Wait{ID: id, UID: uid, GPUs: gpus}, Since: since}
	return &wait{noted: n, events: make(chan Answer, 1), ctx: t.Context()}
}

// TestWhoTakesNothingGoesBehind: with any number of waits, no one has free GPUs kept minute after minute.
func TestWhoTakesNothingGoesBehind(t *testing.T) {
	const now = 2 * time.Hour
	q := &waits{offers: []offer{{id: "m1", uid: 2, gpus: gpusOf(1), by: now - time.Second, told: true}}}
	q.list = []*wait{
		waitOf(t, "m1", 2, 1, time.Minute), waitOf(t, "m2", 2, 1, 2*time.Minute),
		waitOf(t, "m3", 2, 1, 3*time.Minute), waitOf(t, "a", 1, 1, time.Hour),
	}
	q.list[2].change = &change.Change{}
	q.expire(nil, map[snapshot.DeviceIndex]gpus.State{0: gpus.Free}, now)
	require.Empty(t, q.offers)
	for i, want := range []time.Duration{now, now, 3 * time.Minute, time.Hour} {
		require.Equal(t, want, q.list[i].Since, i)
	}
}

// TestAWaitNamesGPUs that a host can have, so that all waits fit into a snapshot. By an id such as "x/alice", what is
// taken for that wait would be a warning of what is taken from alice for wait x.
func TestAWaitNamesGPUs(t *testing.T) {
	for id, want := range map[string]bool{"x": true, "x/alice": false, "": false, strings.Repeat("x", 65): false} {
		require.Equal(t, want, waitOf(t, id, 1, 1, 0).check() == nil, id)
	}
	for _, suits := range [][]snapshot.DeviceIndex{{-1}, {1024}, make([]snapshot.DeviceIndex, 129)} {
		w := waitOf(t, "w", 1, 1, 0)
		w.Suits = suits
		require.Error(t, w.check(), suits)
	}
}

// TestAWaitIsForGPUs: one for MIG instances or none would come first always, and could be in no snapshot.
func TestAWaitIsForGPUs(t *testing.T) {
	for n, want := range map[int]bool{-1: false, 0: false, 1: true, 128: true, 129: false} {
		for _, c := range []*change.Change{nil, {}} {
			w := waitOf(t, "w", 1, n, 0)
			w.change = c
			require.Equal(t, want, w.check() == nil, n)
		}
	}
}

// TestWhatContainersUse: whatever uid their image has, they take no one's turn, and no offer.
func TestWhatContainersUse(t *testing.T) {
	uses := func(index snapshot.DeviceIndex, c *snapshot.ContainerInfo) snapshot.Process {
		return snapshot.Process{UID: new(snapshot.UID(1)), ContainerInfo: c, Usage: []snapshot.DeviceUsage{{Index: index}}}
	}
	look := &snapshot.Snapshot{Processes: []snapshot.Process{
		uses(0, &snapshot.ContainerInfo{}), uses(1, &snapshot.ContainerInfo{UID: new(snapshot.UID(2))}), uses(2, nil),
	}}
	require.Equal(t, map[keptGPU]bool{{0, 0}: true, {1, 2}: true, {2, 1}: true}, heldBy(look))
}

// TestWhatContainersMayNotAsk: what counts for an account.
func TestWhatContainersMayNotAsk(t *testing.T) {
	for text, want := range map[string]bool{
		`"change":{"leave":{"pid":7}}`: true, `"wait":{"id":"a"}`: true, `"reserve":{"gpus":1}`: true, `"cancel":"a"`: true, `"withdraw":"a"`: true,
		`"look":"envs"`: false, `"status":true`: false, `"token":""`: false, `"redeem":"a"`: false, `"allow":{}`: false, `"allowance":true`: false,
	} {
		r, err := decodeRequest([]byte(`{"version":1,` + text + `}`))
		require.NoError(t, err, text)
		require.Equal(t, want, r.changes(), text)
	}
}

// TestANoteThatCannotBeWritten is reported once, and written when there is room again, though no one waits by then: a
// controller would free GPUs for waits that are over.
func TestANoteThatCannotBeWritten(t *testing.T) {
	run, failed := filepath.Join(t.TempDir(), "run"), 0
	s := &Server{Run: run, Failed: func(error) { failed++ }}
	s.loadWaits()
	s.waits.file = "of a wait that is over"
	for range 3 {
		s.note(0)
	}
	require.Equal(t, 1, failed)
	require.NoError(t, os.Mkdir(run, 0o755))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	<-s.waits.changed // nothing wakes it
	go s.serveWaits(ctx)
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(run, WaitsFile)); return err == nil }, 10*time.Second, 50*time.Millisecond)
}

// TestAllWaitsFitIntoASnapshot, also with those of an earlier service.
func TestAllWaitsFitIntoASnapshot(t *testing.T) {
	q := &waits{}
	for i := range snapshot.MaxWaits {
		q.disconnected = append(q.disconnected, waitOf(t, fmt.Sprint(i), snapshot.UID(i), 1, 0).noted)
	}
	w := &wait{noted: q.disconnected[7]}
	require.NoError(t, q.admit(w), "it comes back")
	w.ID = "new"
	require.Error(t, q.admit(w))
}

// TestTwoOffersOfOneGPU: the second one, as of another controller, is refused.
func TestTwoOffersOfOneGPU(t *testing.T) {
	q := &waits{changed: make(chan struct{}, 1)}
	for uid, id := range []string{"a", "b", "c"} {
		q.list = append(q.list, waitOf(t, id, snapshot.UID(uid), 1, 0))
	}
	q.offers = []offer{{id: "a", gpus: gpusOf(2), by: time.Hour}}
	q.offered(map[string][]snapshot.DeviceIndex{"b": {1, 2}, "c": {2}}, nil)
	require.Len(t, q.offers, 2)
	require.Equal(t, "c", q.offers[1].id)
}

// TestAnOfferThatIsWithdrawn is free for others at once, and isn't let pass; one that a controller freed GPUs for is.
func TestAnOfferThatIsWithdrawn(t *testing.T) {
	now := sinceBoot()
	q := &waits{offers: []offer{{id: "a", uid: 1, gpus: gpusOf(2), by: now + offerFor, told: true}}}
	for id, uid := range map[string]snapshot.UID{"a": 2, "b": 1} {
		q.withdraw(id, uid)
		require.Len(t, q.offers, 1)
	}
	q.offers = append(q.offers, offer{id: "a", uid: 1, gpus: gpusOf(1)})
	q.withdraw("a", 1)
	require.Len(t, q.offers, 2)
	q.offers = q.offers[:1]
	q.withdraw("a", 1)
	require.Empty(t, q.offers)
	require.Less(t, q.passed[1], now+2*offerFor)
	q.passed[1] = now + passedFor
	q.offers = []offer{{id: "a", uid: 1, told: true}}
	q.withdraw("a", 1)
	require.Equal(t, now+passedFor, q.passed[1], "what was let pass before stays so")
}

// TestAnOfferIsKeptFromTheFirstOne in the queue, too, for whom all else is kept back.
func TestAnOfferIsKeptFromTheFirstOne(t *testing.T) {
	const now = time.Hour
	first, begins := waitOf(t, "b", 1, 1, 0), waitOf(t, "d", 3, 1, 0)
	look := &snapshot.Snapshot{}
	for _, index := range gpusOf(5) {
		look.Devices = append(look.Devices, snapshot.Device{Index: index})
	}
	q := &waits{offers: []offer{{id: "c", uid: 2, gpus: gpusOf(3), by: now + offerFor, told: true}}}
	q.keptBack = keptBack{id: "b", since: now}
	q.keep(look, []*wait{first, begins}, map[*wait][]snapshot.DeviceIndex{begins: {3}}, now)
	for uid, want := range map[snapshot.UID][]snapshot.DeviceIndex{1: gpusOf(4), 2: {3, 4}, 3: {0, 1, 2, 4}, 4: gpusOf(5)} {
		require.Equal(t, want, q.keptFrom(uid), uid)
	}
}

// TestWhoLetsAnOfferPass has no need for a day, with whatever waits, also one who left at once, and after a restart.
func TestWhoLetsAnOfferPass(t *testing.T) {
	run, now := t.TempDir(), sinceBoot()
	s := &Server{Run: run}
	s.loadWaits()
	q := &s.waits
	q.offers = []offer{
		{id: "left", uid: 2, gpus: []snapshot.DeviceIndex{0}, by: now, told: true},
		{id: "taken", uid: 3, gpus: []snapshot.DeviceIndex{1}, by: now, told: true},
		{id: "used by others", uid: 4, gpus: []snapshot.DeviceIndex{2}, by: now, told: true},
		{id: "ended already", uid: 6, gpus: []snapshot.DeviceIndex{4, 5}, by: now + time.Second, told: true},
		{id: "runs", uid: 5, gpus: []snapshot.DeviceIndex{3}, by: now + 1, told: true},
	}
	has := map[keptGPU]bool{{1, 3}: true}
	states := map[snapshot.DeviceIndex]gpus.State{1: gpus.Busy, 2: gpus.Busy}
	for _, index := range []snapshot.DeviceIndex{0, 3, 4, 5} {
		states[index] = gpus.Free
	}
	q.took(6, []snapshot.DeviceIndex{5})
	q.took(5, []snapshot.DeviceIndex{5})
	q.expire(has, states, now)
	require.Len(t, q.offers, 1)
	s.note(now)
	after := &Server{Run: run}
	after.loadWaits()
	require.Equal(t, map[snapshot.UID]time.Duration{2: now + passedFor}, after.waits.passed)
	list := map[string][]snapshot.DeviceIndex{}
	for uid := range snapshot.UID(4) {
		w := waitOf(t, fmt.Sprint("new", uid), uid, 1, now)
		after.waits.list = append(after.waits.list, w)
		list[w.ID] = []snapshot.DeviceIndex{snapshot.DeviceIndex(uid)}
	}
	after.waits.offered(list, nil)
	require.Len(t, after.waits.offers, 3)
	after.note(now)
	for _, w := range Waits(run, func(snapshot.PID, snapshot.StartTime) bool { return true }) {
		require.Equal(t, w.UID == 2, w.Passed, w.UID)
	}
	after.note(now + passedFor)
	require.Empty(t, after.waits.passed)
}

// shown is the host of a test, as it is shown.
type shown struct {
	Backend
	look snapshot.Snapshot
}

func (s *shown) Snapshot(context.Context) (*snapshot.Snapshot, error) { return &s.look, nil }

// TestWhoTakesNothingKeepsNothing: a user whose commands end or withdraw once GPUs are offered doesn't keep these from
// others with the next command, though the others have more GPUs.
func TestWhoTakesNothingKeepsNothing(t *testing.T) {
	const carol, bob = 1001, 1002
	host := &shown{look: snapshot.Snapshot{Environments: []snapshot.Environment{{EID: "b", UID: bob}}}}
	for _, index := range gpusOf(4) {
		host.look.Devices = append(host.look.Devices, snapshot.Device{
			Index: index, UUID: snapshot.GPUUUID(fmt.Sprint("GPU-", index)), UsedMemory: snapshot.MustMemory("1mi"),
		})
	}
	host.look.Devices[0].Attachments = []snapshot.Attachment{{EID: "b"}}
	s := &Server{Backend: host, Now: time.Now}
	q := &s.waits
	waits := func(id string, uid snapshot.UID, gpus int) *wait { return waitOf(t, id, uid, gpus, sinceBoot()) }
	offered := func(want ...string) {
		t.Helper()
		s.round(t.Context())
		list := []string{}
		for _, o := range q.offers {
			list = append(list, fmt.Sprint(o.id, o.gpus))
		}
		require.ElementsMatch(t, want, list)
	}
	q.list = []*wait{waits("c1", carol, 3)}
	offered("c1[1 2 3]")
	require.Equal(t, gpuList{1, 2, 3}, (<-q.list[0].events).Waiting.Offered, "no place is said instead")
	second, other := waits("c2", carol, 3), waits("b1", bob, 1)
	q.list = []*wait{second, other}
	offered("c1[1 2 3]")
	q.offers[0].by = 1
	offered("b1[1]")
	require.Equal(t, 1, second.place.Number, "of those who are offered nothing")

	q.list, q.offers = []*wait{second}, nil
	offered()
	require.Equal(t, "you took nothing of what was offered for a minute", second.place.Barred)
	q.passed[carol] -= offerFor
	offered("c2[1 2 3]")

	delete(q.passed, carol)
	q.withdraw("c2", carol)
	offered()
	q.passed[carol] -= offerFor
	offered("c2[1 2 3]")
}

// TestAnOfferThatACapRefuses is let pass: nothing is taken from others for it again and again.
func TestAnOfferThatACapRefuses(t *testing.T) {
	for by, passed := range map[*allowanceState]bool{nil: false, {}: true} {
		w := waitOf(t, "a", 1, 1, 0)
		w.change, w.refusedBy = &change.Change{}, by
		q := &waits{list: []*wait{w}, offers: []offer{{id: "a", uid: 1, gpus: gpusOf(1), by: time.Hour}}}
		q.expire(nil, map[snapshot.DeviceIndex]gpus.State{0: gpus.Free}, time.Hour)
		require.Empty(t, q.offers)
		require.Equal(t, passed, q.passed[1] > 0)
	}
}
