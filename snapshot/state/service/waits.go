package service

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// WaitRequest asks for a place in the queue.
type WaitRequest struct {
	// ID is chosen by the client: one for all its hosts and connections.
	ID string `json:"id"`
	// Change is made in its turn. Without one, its GPUs are kept for its user for a minute.
	Change *change.Change         `json:"change,omitempty"`
	GPUs   int                    `json:"gpus,omitempty"` // if there is no Change: see snapshot.Wait
	Suits  []snapshot.DeviceIndex `json:"suits,omitempty"`
}

const (
	maxOwnWaits = 64 // per user
	maxWaitID   = 64 // bytes

	offerFor     = time.Minute            // GPUs are kept this long for a wait
	passedFor    = 24 * time.Hour         // a user who let an offer pass gets nothing freed for this long
	returnWithin = 5 * time.Second        // a restarted service gives GPUs only after this
	lookEvery    = 5 * time.Second        // between looks at the host while someone waits
	roundFloor   = 100 * time.Millisecond // the minimum between looks
)

// waits is the queue for GPUs. Times are since boot.
type waits struct {
	mu           sync.Mutex
	list         []*wait
	disconnected []noted // from an earlier service; they keep their places for returnWithin
	offers       []offer
	keptBack     keptBack
	kept         []keptGPU
	passed       map[snapshot.UID]time.Duration // until when nothing is freed for a user who let an offer pass
	possible     map[string]int                 // from the controller
	file         string                         // the note on disk, as JSON
	lookError    string
	noteError    string
	begun        time.Duration
	changed      chan struct{}
}

type wait struct {
	noted
	change    *change.Change // nil: GPUs are only offered
	by        callerProcess
	events    chan Answer // the last answer, until it is sent
	place     QueuePlace  // that the client was last told
	done      bool
	ctx       context.Context // ends with the connection
	refusedBy *allowanceState // its cap refused the change: the wait is passed over until the next allowance

	// From the last round:
	missing int                    // GPUs still needed
	free    []snapshot.DeviceIndex // GPUs that it could have now, the best first
	barred  string                 // why others overtake it while it keeps its place: caps or reservations
	behind  bool                   // it comes last, as its user let an offer pass
}

// offer is GPUs kept for a wait or, after its end, for its user.
type offer struct {
	id    string
	uid   snapshot.UID
	gpus  []snapshot.DeviceIndex
	by    time.Duration // when it ends; 0 until its GPUs are free
	told  bool          // the command knows
	taken bool          // the user attached some of them; they may be free again at the next look
}

type keptGPU struct {
	index snapshot.DeviceIndex
	uid   snapshot.UID
}

func sinceBoot() time.Duration {
	since, _ := proc.SinceBoot() // never fails on Linux
	return since
}

func (q *waits) wake() {
	select {
	case q.changed <- struct{}{}:
	default: // already pending
	}
}

// empty says that no look at the host is needed; q.mu is held.
func (q *waits) empty() bool { return len(q.list)+len(q.disconnected)+len(q.offers) == 0 }

func (s *Server) serveWaits(ctx context.Context) {
	q := &s.waits
	for {
		q.mu.Lock()
		idle := q.empty() && q.file != "" && q.noteError == ""
		q.mu.Unlock()
		var tick <-chan time.Time
		if !idle {
			tick = time.After(lookEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-q.changed:
		case <-tick:
		}
		s.round(ctx)
		if !pause(ctx, roundFloor) {
			return
		}
	}
}

// wait serves a waiting command until its turn. Meanwhile it doesn't count as its user's connection.
func (s *Server) wait(ctx context.Context, conn *net.UnixConn, r *WaitRequest, by callerProcess, release func()) {
	ctx, cancel := untilClosed(ctx, conn)
	defer cancel()
	w, err := s.enter(ctx, r, by)
	release()
	if err != nil {
		_ = s.say(conn, failure(err), takeWithin) // the client may be gone
		return
	}
	defer s.waits.leave(w)
	for {
		select {
		case a := <-w.events:
			if last := a.Waiting == nil; s.say(conn, a, takeWithin) != nil || last {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) enter(ctx context.Context, r *WaitRequest, by callerProcess) (*wait, error) {
	w := &wait{by: by, events: make(chan Answer, 1), ctx: ctx}
	w.ID, w.UID, w.GPUs, w.Suits = r.ID, by.account, r.GPUs, r.Suits
	if by.unknown == nil {
		w.PID = by.pid
		stat, err := s.Proc.Stat(by.pid)
		if err != nil {
			return nil, err
		}
		w.Start = stat.Start
	}
	w.Username = s.Username(ctx, by.account)
	if w.change = r.Change; w.change != nil {
		if err := s.prepare(ctx, w); err != nil {
			return nil, err
		}
	}
	w.by.name = w.Username
	if err := w.check(); err != nil {
		return nil, err
	}
	q := &s.waits
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.admit(w); err != nil {
		return nil, err
	}
	w.Since = sinceBoot()
	if at := w.indexIn(q.disconnected); at >= 0 {
		w.Since = q.disconnected[at].Since
		q.disconnected = slices.Delete(q.disconnected, at, at+1)
	}
	q.list = append(q.list, w)
	q.wake()
	return w, nil
}

func (w *wait) indexIn(list []noted) int {
	return slices.IndexFunc(list, func(n noted) bool {
		return n.ID == w.ID && n.UID == w.UID && n.PID == w.PID && n.Start == w.Start
	})
}

func (w *wait) check() error {
	if w.ID == "" || len(w.ID) > maxWaitID || !text.IsMadeOf(w.ID, "") || w.GPUs < 1 ||
		w.GPUs > maxOwnGPUs || len(w.Suits) > maxOwnGPUs ||
		slices.ContainsFunc(w.Suits, func(i snapshot.DeviceIndex) bool { return i < 0 || i >= maxIndex }) {
		return state.Refuse("a wait has an id, and is for 1 to %d GPUs", maxOwnGPUs)
	}
	return nil
}

// Bounds above any real host's, but all waits must fit into a snapshot.
const (
	maxOwnGPUs = 128
	maxIndex   = 1024
)

// admit refuses a wait beyond the limits, or with another's id; q.mu is held.
func (q *waits) admit(w *wait) error {
	own := 0
	taken := slices.ContainsFunc(q.disconnected, func(n noted) bool { return n.ID == w.ID && n.UID != w.UID })
	for _, other := range q.list {
		taken = taken || other.ID == w.ID
		if other.UID == w.UID {
			own++
		}
	}
	switch {
	case taken:
		return state.Refuse("another command waits with this id")
	case own >= maxOwnWaits:
		return state.Refuse("%d commands of uid %d wait already, and no more may: end one of them", own, w.UID)
	case len(q.list)+len(q.disconnected) >= snapshot.MaxWaits && w.indexIn(q.disconnected) < 0:
		return state.Refuse("%d commands wait already on this host, and no more may: use another host, or ask your "+
			"administrator", len(q.list)+len(q.disconnected))
	}
	return nil
}

// prepare finds out how many GPUs a command waits for, and refuses what its turn would.
func (s *Server) prepare(ctx context.Context, w *wait) error {
	look, err := s.Backend.Snapshot(ctx)
	if err != nil {
		return err
	}
	asker, named := s.requester(ctx, w.by)
	defer named.close()
	if _, err := w.change.Prepare(asker); err != nil {
		return err
	}
	files := filesOf(look)
	s.waits.mu.Lock()
	again := w.indexIn(s.waits.disconnected) >= 0
	s.waits.mu.Unlock()
	if e := w.change.Enter; again && e != nil && e.EID == "" { // the last service may have ended right after its turn
		if env := files.EnvironmentOf(e.PID); env != nil {
			e.EID = env.EID
		}
	}
	r, err := w.change.Wanted(&files, w.UID)
	if err != nil {
		return err
	}
	if a := w.change.Attach; a != nil { // the configured count may change, and then its turn could fail forever
		a.Count = r.Count
	}
	w.GPUs = r.Count
	if len(r.Indices) > 0 {
		w.GPUs, w.Suits = len(r.Indices), r.Indices
	}
	return files.CheckRequest(r)
}

// leave removes a wait. GPUs offered to it stay kept for its user until the offer ends.
func (q *waits) leave(w *wait) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.done = true
	q.list = slices.DeleteFunc(q.list, func(other *wait) bool { return other == w })
	q.wake()
}

// say replaces an answer that was not sent yet; q.mu is held.
func (w *wait) say(a Answer) {
	select {
	case <-w.events:
	default:
	}
	w.events <- a
}

// filesOf returns the state files in a look. Its devices may be changed, but not their attachments.
func filesOf(look *snapshot.Snapshot) state.Files {
	return state.Files{Devices: slices.Clone(look.Devices), Environments: look.Environments}
}

func (w *wait) suitedBy(index snapshot.DeviceIndex) bool {
	return w.Suits == nil || slices.Contains(w.Suits, index)
}

// room returns the GPUs that a wait could have now, the best first, and how many it lacks, or why it would fail.
func (w *wait) room(look *snapshot.Snapshot, states map[snapshot.DeviceIndex]gpus.State, last []snapshot.DeviceIndex) (
	free []snapshot.DeviceIndex, missing int, err error,
) {
	files, r, missing := filesOf(look), state.AttachRequest{Count: w.GPUs}, w.GPUs
	if w.change != nil {
		if r, err = w.change.Wanted(&files, w.UID); err != nil {
			return nil, 1, err
		}
		has := files.AttachedTo(r.EID)
		missing -= len(has)
		if w.Suits != nil {
			missing = len(without(w.Suits, has))
		}
	}
	r.Availability, r.OverSubscribe = state.Availability{Last: last}, false // the client doesn't decide these
	for _, d := range files.Room(r) {
		shared := len(d.Attachments) > 0 && states[d.Index] != gpus.Unknown
		if (states[d.Index] == gpus.Free || shared) && w.suitedBy(d.Index) {
			free = append(free, d.Index)
		}
	}
	return free, max(missing, 0), nil
}

// usable counts working GPUs that suit the wait. A wait for more would keep free GPUs back and never begin.
func (w *wait) usable(look *snapshot.Snapshot) (n int) {
	empty := filesOf(look)
	for i := range empty.Devices {
		empty.Devices[i].Attachments = nil
	}
	var r state.AttachRequest
	if w.change != nil {
		r, _ = w.change.Wanted(&empty, w.UID) // a failing wait is barred anyway
	}
	r.Availability = state.Availability{}
	for _, d := range empty.Room(r) {
		if d.Works() && !d.MIGMode && w.suitedBy(d.Index) {
			n++
		}
	}
	return n
}

func heldBy(look *snapshot.Snapshot) map[keptGPU]bool {
	has := make(map[keptGPU]bool)
	environments := snapshot.ByID(look.Environments)
	for i := range look.Devices {
		for _, a := range look.Devices[i].Attachments {
			if env := environments[a.EID]; env != nil {
				has[keptGPU{look.Devices[i].Index, env.UID}] = true
			}
		}
	}
	for i := range look.Processes {
		p := &look.Processes[i]
		if uid := p.CountsForUID(); uid != nil {
			for _, index := range p.Indices() {
				has[keptGPU{index, *uid}] = true
			}
		}
	}
	return has
}

// peopleOn returns who surely uses each GPU, without system accounts and the desktop.
func peopleOn(look *snapshot.Snapshot) map[snapshot.DeviceIndex][]snapshot.UID {
	people := make(map[snapshot.DeviceIndex][]snapshot.UID)
	for i := range look.Processes {
		p := &look.Processes[i]
		uid := p.CountsForUID()
		if uid == nil || *uid == 0 || look.FirstUID != nil && *uid < *look.FirstUID || p.NodeMissing ||
			p.Protected != "" {
			continue
		}
		for _, u := range p.Usage {
			if !look.OfDesktop(u) && !look.TypeUnknown(u) {
				people[u.Index] = append(people[u.Index], *uid)
			}
		}
	}
	return people
}
