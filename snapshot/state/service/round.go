package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// round gives free GPUs to the next waits, and tells the others their places.
func (s *Server) round(ctx context.Context) {
	q := &s.waits
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.empty() {
		q.keptBack.id, q.kept = "", nil
		s.note(sinceBoot())
		return
	}
	q.mu.Unlock()
	look, err := s.Backend.Snapshot(ctx)
	q.mu.Lock()
	if s.failedOnce(&q.lookError, err); err != nil {
		return
	}
	now := sinceBoot()
	list := gpus.Of(look)
	states, last := make(map[snapshot.DeviceIndex]gpus.State), gpus.Last(list)
	for i := range list {
		states[list[i].Index] = list[i].State
	}
	has := heldBy(look)
	q.expire(has, states, now)
	have := q.counted(has)
	var waiting []*wait
	for _, w := range q.list {
		if w.done || w.ctx.Err() != nil || q.offerTo(w.ID) != nil {
			continue
		}
		free, missing, err := w.room(look, states, last)
		if w.barred = s.barred(look, w, has, free, missing); err != nil {
			w.barred = "it would be refused: " + text.OneLine(err.Error())
		}
		w.free, w.missing, w.behind = q.available(w, free), missing, w.change == nil && now < q.passed[w.UID]
		waiting = append(waiting, w)
	}
	given := map[*wait][]snapshot.DeviceIndex{}
	q.disconnected = s.stillDisconnected(q.disconnected, now)
	if len(q.disconnected) == 0 || now-q.begun > returnWithin {
		q.disconnected = nil
		given, q.keptBack = decide(waiting, have, q.keptBack, now)
	}
	q.offer(given, now)
	q.keep(look, waiting, given, now)
	q.mu.Unlock()
	for w, chosen := range given {
		s.give(w, chosen)
	}
	q.mu.Lock()
	waiting = slices.DeleteFunc(waiting, func(w *wait) bool { return w.done || q.offerTo(w.ID) != nil })
	q.keep(look, waiting, nil, now)
	if inOrder(waiting, have, now); len(waiting) > 0 {
		q.tell(waiting, now)
	}
	s.note(now)
}

// barred says why a wait couldn't get GPUs even if it came first; empty if it could.
func (s *Server) barred(
	look *snapshot.Snapshot, w *wait, has map[keptGPU]bool, free []snapshot.DeviceIndex, missing int,
) string {
	left := s.waits.passed[w.UID] - sinceBoot()
	if w.change == nil && left > 0 && (left <= offerFor || left > passedFor-offerFor) {
		return "you took nothing of what was offered for a minute"
	}
	if n := w.usable(look); missing > n {
		return fmt.Sprintf("only %s that you can have here work", text.Plural(n, "GPU"))
	}
	if why := s.overCaps(look, w, has, missing); why != "" {
		return why
	}
	if t := s.allowed.Load(); t == w.refusedBy && t.holds(s.Now()) {
		return "a cap of the policy allows no more now"
	}
	if s.reserved(look, w, free, missing) {
		return "the GPUs that are free are reserved"
	}
	return ""
}

// reserved says whether the wait's GPUs are needed for reservations.
func (s *Server) reserved(look *snapshot.Snapshot, w *wait, free []snapshot.DeviceIndex, missing int) bool {
	if w.UID == 0 || len(free) < missing {
		return false
	}
	list, _ := s.Reservations.All() // upkeep reports an error
	if _, gpus := snapshot.RunningAt(list, s.Now()); gpus == 0 {
		return false
	}
	files, used := filesOf(look), peopleOn(look)
	before := files.Overbooked(list, s.Now(), used)
	for _, index := range free[:missing] {
		used[index] = append(used[index], w.UID)
	}
	return files.Overbooked(list, s.Now(), used) > before
}

// offer keeps given GPUs for waits without a change, and drops those from given; q.mu is held.
func (q *waits) offer(given map[*wait][]snapshot.DeviceIndex, now time.Duration) {
	maps.DeleteFunc(given, func(w *wait, chosen []snapshot.DeviceIndex) bool {
		if w.change == nil {
			q.offers = append(q.offers, offer{id: w.ID, uid: w.UID, gpus: chosen, by: now + offerFor, told: true})
			w.say(Answer{Waiting: &QueuePlace{Offered: chosen}})
		}
		return w.change == nil
	})
}

// give makes a wait's change. It can take long, so q.mu isn't held.
func (s *Server) give(w *wait, chosen []snapshot.DeviceIndex) {
	ctx, cancel := context.WithTimeout(w.ctx, changeWithin)
	defer cancel()
	result, err := s.change(ctx, w.change.Within(chosen), w.by, false)
	if err == nil && w.ctx.Err() != nil {
		undone := undo(w.change, &result)
		_, _ = s.change(context.WithoutCancel(w.ctx), undone, w.by, false) // if this fails, it ends with the process
	}
	q := &s.waits
	if err == nil {
		q.took(w.UID, result.Now)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case errors.Is(err, state.ErrUnavailable), errors.Is(err, state.ErrCap), errors.Is(err, ErrBusy): // still waits
		if errors.Is(err, state.ErrCap) {
			w.refusedBy = s.allowed.Load()
			q.wake()
		}
		return
	case err != nil:
		w.say(failure(err))
	default:
		w.say(Answer{Result: &result})
	}
	w.done = true
	q.offers = slices.DeleteFunc(q.offers, func(o offer) bool { return o.id == w.ID })
}

func undo(c *change.Change, r *change.Result) change.Change {
	if c.Enter != nil {
		return change.Change{Leave: &change.Leave{PID: c.Enter.PID, Kernel: c.Enter.Kernel}}
	}
	return change.Change{Detach: &change.Detach{EID: r.EID, Indices: without(r.Now, r.Before)}}
}

// expire removes offers that are over or have a GPU in use, and starts the clock of those with all GPUs free; q.mu is
// held.
func (q *waits) expire(has map[keptGPU]bool, states map[snapshot.DeviceIndex]gpus.State, now time.Duration) {
	for i := 0; i < len(q.offers); i++ {
		o := &q.offers[i]
		free := !slices.ContainsFunc(o.gpus, func(i snapshot.DeviceIndex) bool { return states[i] != gpus.Free })
		taken := o.taken || o.told &&
			slices.ContainsFunc(o.gpus, func(i snapshot.DeviceIndex) bool { return has[keptGPU{i, o.uid}] })
		at := slices.IndexFunc(q.list, func(w *wait) bool { return w.ID == o.id })
		switch {
		case o.by == 0 && free:
			o.by = now + offerFor
			continue
		case (o.told || at >= 0) && (o.by == 0 || free && now < o.by && !taken):
			continue
		case taken && at >= 0:
			q.list[at].done = true
			q.list[at].say(Answer{Result: &change.Result{}})
		case (o.told || at >= 0 && q.list[at].refusedBy != nil) && free && !taken:
			q.letPass(o.uid, now)
		}
		if at >= 0 {
			q.list[at].place = QueuePlace{} // so that it is told its place again
		}
		q.offers = slices.Delete(q.offers, i, i+1)
		i--
	}
}

func (q *waits) took(uid snapshot.UID, list []snapshot.DeviceIndex) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.offers {
		o := &q.offers[i]
		o.taken = o.taken || o.told && o.uid == uid && len(without(o.gpus, list)) < len(o.gpus)
	}
}

// letPass notes that a user took no GPU of an offer. The user's waits without a change start at the end again, or GPUs
// would be kept for them minute after minute; q.mu is held.
func (q *waits) letPass(uid snapshot.UID, now time.Duration) {
	q.comesBehind(uid, now+passedFor)
	for _, w := range q.list {
		if w.UID == uid && w.change == nil {
			w.Since = now
		}
	}
}

// withdraw ends an offer after its user got GPUs elsewhere. For a minute the user is offered none, as repeated
// withdrawals would keep GPUs from others. GPUs that a controller frees for the wait stay offered.
func (q *waits) withdraw(id string, uid snapshot.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	own := func(o offer) bool { return o.id == id && o.uid == uid }
	freed := slices.ContainsFunc(q.offers, func(o offer) bool { return own(o) && !o.told })
	if !freed && slices.ContainsFunc(q.offers, own) {
		q.offers = slices.DeleteFunc(q.offers, own)
		q.comesBehind(uid, sinceBoot()+offerFor)
		q.wake()
	}
}

func (q *waits) comesBehind(uid snapshot.UID, until time.Duration) {
	if q.passed == nil {
		q.passed = make(map[snapshot.UID]time.Duration)
	}
	q.passed[uid] = max(q.passed[uid], until)
}

// counted returns how many GPUs each user has, or is offered; q.mu is held.
func (q *waits) counted(has map[keptGPU]bool) map[snapshot.UID]int {
	for _, o := range q.offers {
		for _, index := range o.gpus {
			if o.told {
				has[keptGPU{index, o.uid}] = true
			}
		}
	}
	have := make(map[snapshot.UID]int)
	for pair := range has {
		have[pair.uid]++
	}
	return have
}

// offerTo returns the offer told to a wait, or nil; q.mu is held.
func (q *waits) offerTo(id string) *offer {
	for i := range q.offers {
		if o := &q.offers[i]; o.id == id && o.told {
			return o
		}
	}
	return nil
}

// available returns the free GPUs not kept for other waits, w's own first; q.mu is held.
func (q *waits) available(w *wait, free []snapshot.DeviceIndex) []snapshot.DeviceIndex {
	var own []snapshot.DeviceIndex
	for _, o := range q.offers {
		mine := o.id == w.ID || o.told && o.uid == w.UID && w.change != nil // offered to the user's `genv remote wait`
		for _, index := range o.gpus {
			at := slices.Index(free, index)
			if at < 0 {
				continue
			}
			free = slices.Delete(slices.Clone(free), at, at+1)
			if mine {
				own = append(own, index)
			}
		}
	}
	return append(own, free...)
}

// offered notes GPUs that a controller frees for waits, and keeps for these alone. A wait gets none if one of them is
// already offered to another.
func (q *waits) offered(list map[string][]snapshot.DeviceIndex, possible map[string]int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.possible = possible
	now := sinceBoot()
	q.offers = slices.DeleteFunc(q.offers, func(o offer) bool { return !o.told && o.by == 0 && list[o.id] == nil })
	for _, w := range q.list {
		next := list[w.ID]
		known := slices.ContainsFunc(q.offers, func(o offer) bool {
			return o.id == w.ID || len(without(o.gpus, next)) < len(o.gpus)
		})
		if len(next) > 0 && len(next) <= maxOwnGPUs && !known && now >= q.passed[w.UID] {
			q.offers = append(q.offers, offer{id: w.ID, uid: w.UID, gpus: next})
		}
	}
	q.wake()
}

// keep notes which GPUs only one user may attach without waiting: those offered or given to that user's waits and,
// while keptBack.keeps, all others that suit the first wait. That time starts once others could have something, such as
// part of a GPU. MIG instances aren't kept. q.mu is held.
func (q *waits) keep(
	look *snapshot.Snapshot, waiting []*wait, given map[*wait][]snapshot.DeviceIndex, now time.Duration,
) {
	q.kept = nil
	offered := make(map[snapshot.DeviceIndex]bool)
	add := func(uid snapshot.UID, list []snapshot.DeviceIndex) {
		for _, index := range list {
			q.kept, offered[index] = append(q.kept, keptGPU{index, uid}), true
		}
	}
	for _, o := range q.offers {
		add(o.uid, o.gpus)
	}
	for w, chosen := range given {
		add(w.UID, chosen)
	}
	at := slices.IndexFunc(waiting, func(w *wait) bool { return w.ID == q.keptBack.id })
	if at < 0 || !q.keptBack.keeps(now) {
		return
	}
	first := waiting[at]
	list := gpus.Of(look)
	for i := range list {
		g := &list[i]
		if offered[g.Index] || g.MIGMode || !first.suitedBy(g.Index) {
			continue
		}
		q.kept = append(q.kept, keptGPU{g.Index, first.UID})
		if h := &q.keptBack; h.since == 0 && hasRoom(look, g) {
			h.since, h.uid, h.served = now, first.UID, false
		}
	}
}

func hasRoom(look *snapshot.Snapshot, g *gpus.GPU) bool {
	files := state.Files{Devices: look.Devices}
	part := files.Room(state.AttachRequest{Memory: snapshot.MiB(1)})
	return g.State == gpus.Free || slices.ContainsFunc(part, func(d *snapshot.Device) bool {
		return d.Index == g.Index && len(d.Attachments) > 0
	})
}

// keptFrom returns the GPUs that a user must wait for.
func (q *waits) keptFrom(uid snapshot.UID) (list []snapshot.DeviceIndex) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range q.kept {
		if k.uid != uid && !slices.Contains(list, k.index) && !slices.Contains(q.kept, keptGPU{k.index, uid}) {
			list = append(list, k.index)
		}
	}
	slices.Sort(list)
	return list
}
