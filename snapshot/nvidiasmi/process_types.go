package nvidiasmi

import (
	"cmp"
	"context"
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

// Types finds out the types of processes, which only Details tells. One answer is for all processes,
// and what it says of one is kept. The zero Types knows none. It is safe for concurrent use.
type Types struct {
	said atomic.Pointer[said] // by all answers; nil for nothing

	asking  sync.Mutex // over the rest; whoever wants types has it, also while nvidia-smi hangs
	asked   time.Time
	since   time.Time // of the first question without an answer
	waiting []typed   // what that was for, until there is an answer
	answer  *Details  // the last one; nil if there was none
}

// said is what is known, and doesn't change.
type said struct {
	types    map[typed]snapshot.ProcessType
	displays map[snapshot.GPUUUID]bool
}

func (t *Types) known() said {
	if known := t.said.Load(); known != nil {
		return *known
	}
	return said{}
}

// typed is the use of a GPU by a process.
type typed struct {
	gpu   snapshot.GPUUUID
	pid   snapshot.PID
	start snapshot.StartTime
}

// Set sets what is known about the types of the processes of a snapshot, and about displays. If the
// context is of snapshot.WithTypes and there are unknown ones, it asks, but not too often: until
// then they are pending, unless no screen is active on their GPUs. Where there was no answer in time,
// ask is called with the time of the question, for what came since then. Who doesn't want types waits for no answer.
//
// Any user may be able to make nvidia-smi hang or fail at this question, and so may a sick GPU. So where a screen is
// active, or may be, what has no type yet stays pending: no desktop is judged for it.
func (t *Types) Set(ctx context.Context, s *snapshot.Snapshot, gpus map[snapshot.DeviceIndex]snapshot.GPUUUID, now time.Time, ask AskDetails) {
	wanted := snapshot.WantsTypes(ctx)
	if wanted {
		t.asking.Lock()
		defer t.asking.Unlock()
	}
	before, known, unknown := t.known().types, make(map[typed]snapshot.ProcessType), []typed(nil)
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
		if u.Type = before[key]; u.Type != "" {
			known[key] = u.Type
		} else {
			unknown = append(unknown, key)
		}
	})
	if len(unknown) > 0 && wanted {
		switch {
		case t.asked.IsZero() || now.Sub(t.asked) >= typesEvery:
			if t.waiting == nil {
				t.since, t.waiting = now, unknown
			}
			t.asked = now
			if t.ask(ctx, time.Time{}, ask); t.answer != nil && !t.answer.Time.Late {
				t.waiting = unknown
			}
		case t.waiting != nil:
			t.ask(ctx, t.since, ask)
		}
		each(func(u *snapshot.DeviceUsage, key typed) {
			if u.Type != "" {
				return
			}
			u.Type = t.of(key)
			if u.Type != snapshot.TypePending && key.start != 0 && t.answer != nil {
				known[key] = u.Type
			}
		})
		if t.answer != nil && !t.answer.Time.Late {
			t.waiting = nil
		}
	}
	if wanted {
		t.said.Store(&said{known, t.known().displays})
	}
	for i := range s.Devices {
		s.Devices[i].Display = t.known().displays != nil && !t.dark(gpus[s.Devices[i].Index])
	}
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
	if details.Displays != nil {
		t.said.Store(&said{t.known().types, details.Displays})
	}
	if err == nil {
		t.answer = &details
	} else if since.IsZero() {
		t.answer = nil
	}
}

// dark says that no screen is active on a GPU.
func (t *Types) dark(gpu snapshot.GPUUUID) bool {
	active, known := t.known().displays[gpu]
	return known && !active
}

// of is the type of a use according to the last answer, which it waited for or is some seconds older.
func (t *Types) of(key typed) snapshot.ProcessType {
	answered, waited := snapshot.TypeCompute, false
	if t.answer != nil {
		answered = cmp.Or(t.answer.Drawing[key.pid], answered)
		waited = !t.answer.Time.Late && slices.Contains(t.waiting, key) || key.start == 0 && answered.Draws()
	}
	if !waited && !t.dark(key.gpu) {
		return snapshot.TypePending
	}
	return answered
}
