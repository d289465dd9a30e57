package nvidiasmi

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// How often Types asks for Details, and how long it waits for them.
const (
	typesEvery   = 30 * time.Second
	typesTimeout = 10 * time.Second
)

// longestPending is for how long processes may be pending that started since the last answer.
const longestPending = 10 * time.Minute

// Types finds out the types of processes, which only Details tells. One answer is for all processes,
// and what it says of one is kept. The zero Types knows none. It is safe for concurrent use.
type Types struct {
	mu      sync.Mutex
	asked   time.Time
	since   time.Time // of the first question without an answer
	waiting []typed   // what that was for, until there is an answer
	// answer is the last one. Without one, failed says that there is none, and not only none in time.
	answer   *Details
	failed   bool
	drawn    atomic.Pointer[Details] // answer, for Drawn, which doesn't wait for the next one
	displays map[snapshot.GPUUUID]bool
	known    map[typed]snapshot.ProcessType
}

// typed is the use of a GPU by a process.
type typed struct {
	gpu   snapshot.GPUUUID
	pid   snapshot.PID
	start snapshot.StartTime
}

// Set sets what is known about the types of the processes of a snapshot, and about displays. If the
// context is of snapshot.WithTypes and there are unknown ones, it asks, but not too often: until
// then they are pending, unless no screen was active on their GPUs. Where there is no answer, they
// are what the list of processes says: compute processes. Where there was none in time, ask is called with
// the time of the question, for what came since then.
//
// Any user may be able to make nvidia-smi hang, and so may a sick GPU. So only the look that asked first waits for
// all: at later ones, processes on GPUs that had no active screen in the last answer are what the list
// says, and after longestPending all are of which no type is known. A desktop's was asked for when a
// rule was about it first, so it stays known for as long as that process runs.
func (t *Types) Set(ctx context.Context, s *snapshot.Snapshot, gpus map[snapshot.DeviceIndex]snapshot.GPUUUID, now time.Time, ask AskDetails) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, unknown := make(map[typed]snapshot.ProcessType), []typed(nil)
	each := func(f func(*snapshot.DeviceUsage, typed)) {
		for i := range s.Processes {
			p := &s.Processes[i]
			for j := range p.Usage {
				u := &p.Usage[j]
				f(u, typed{gpus[u.Index], p.PID, p.Start})
			}
		}
	}
	each(func(u *snapshot.DeviceUsage, key typed) {
		if u.Type = t.known[key]; u.Type != "" {
			known[key] = u.Type
		} else {
			unknown = append(unknown, key)
		}
	})
	if len(unknown) > 0 && snapshot.WantsTypes(ctx) {
		switch {
		case t.asked.IsZero() || now.Sub(t.asked) >= typesEvery:
			if t.waiting == nil || now.Sub(t.asked) >= longestPending && !t.waitsForOne(unknown) {
				t.since, t.waiting = now, unknown
			}
			t.asked = now
			if t.ask(ctx, time.Time{}, ask); t.answer != nil && !t.answer.Time.Late {
				t.waiting = unknown
			}
		case t.waiting != nil:
			t.ask(ctx, t.since, ask)
		}
		late := t.answer == nil && !t.failed
		each(func(u *snapshot.DeviceUsage, key typed) {
			if u.Type != "" {
				return
			}
			u.Type = t.of(key, now)
			if drawn := u.Type == snapshot.TypeGraphics; u.Type != snapshot.TypePending && !drawn && key.start != 0 && !late {
				known[key] = u.Type
			}
		})
		if t.answer != nil && !t.answer.Time.Late || t.failed {
			t.waiting = nil
		}
	}
	t.known = known
	for i := range s.Devices {
		s.Devices[i].Display = t.displays[gpus[s.Devices[i].Index]]
	}
}

// Drawn are the processes that only draw, which the list of compute processes doesn't have, and when nvidia-smi
// said so: at most a minute ago, and only if it was asked for types. What draws on an active screen is a
// desktop's, whatever it draws besides, and is left out.
func (t *Types) Drawn(listed []App, now time.Time) (drawn []App, at time.Time) {
	answer := t.drawn.Load()
	if answer == nil || now.Sub(answer.Time.Ended) > 2*typesEvery {
		return nil, at
	}
	spared := make(map[snapshot.PID]bool)
	for i := range listed {
		spared[listed[i].PID] = true
	}
	for _, g := range answer.GPUs {
		for _, p := range g.Processes {
			spared[p.PID] = spared[p.PID] || g.DisplayActive || p.Type != string(snapshot.TypeGraphics)
		}
	}
	for _, g := range answer.GPUs {
		for _, p := range g.Processes {
			if !spared[p.PID] {
				drawn = append(drawn, App{GPU: g.UUID, PID: p.PID, Memory: p.Memory})
			}
		}
	}
	return drawn, answer.Time.Ended
}

// Renew asks again if there are Drawn processes, before one of them is ended.
func (t *Types) Renew(ctx context.Context, listed []App, now time.Time, ask AskDetails) {
	if drawn, _ := t.Drawn(listed, now); len(drawn) > 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ask(ctx, time.Time{}, ask)
	}
}

// waitsForOne says whether a question is still about one of the unknown.
func (t *Types) waitsForOne(unknown []typed) bool {
	return slices.ContainsFunc(unknown, func(key typed) bool { return slices.Contains(t.waiting, key) })
}

// AskDetails asks for Details. If since isn't zero it makes no new call, and returns what a call said that
// began since then, or ErrTimeout.
type AskDetails func(ctx context.Context, since time.Time) (Details, error)

func (t *Types) ask(ctx context.Context, since time.Time, ask AskDetails) {
	within := typesTimeout
	if deadline, ok := ctx.Deadline(); ok { // leaves time to return the snapshot
		within = min(within, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	details, err := ask(ctx, since)
	if err != nil && !since.IsZero() {
		return
	}
	t.answer, t.failed = nil, false
	defer func() { t.drawn.Store(t.answer) }()
	if err != nil {
		t.failed = !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrHung) && ctx.Err() == nil
		return
	}
	t.answer, t.displays = &details, make(map[snapshot.GPUUUID]bool)
	for _, g := range details.GPUs {
		before, twice := t.displays[g.UUID]
		t.displays[g.UUID] = g.DisplayActive && (before || !twice)
	}
}

// of is the type of a use according to the last answer, which it waited for or is some seconds older.
func (t *Types) of(key typed, now time.Time) snapshot.ProcessType {
	switch active, known := t.displays[key.gpu]; {
	case t.failed:
		return snapshot.TypeCompute
	case t.answer == nil && now.After(t.since) && (known && !active || now.Sub(t.since) >= longestPending):
		return snapshot.TypeCompute
	case t.answer == nil:
		return snapshot.TypePending
	}
	answered := t.answer.Type(key.gpu, key.pid)
	waited := !t.answer.Time.Late && slices.Contains(t.waiting, key)
	if known := waited || key.start == 0 && answered.Draws(); !known && t.displays[key.gpu] {
		return snapshot.TypePending
	}
	return answered
}

// Type is the type of a process on a GPU; that of a compute process if it isn't listed.
func (d *Details) Type(uuid snapshot.GPUUUID, pid snapshot.PID) snapshot.ProcessType {
	if g := d.gpu(uuid); g != nil {
		for _, p := range g.Processes {
			if t := snapshot.ProcessType(p.Type); p.PID == pid && t.Draws() {
				return t
			}
		}
	}
	return snapshot.TypeCompute
}
