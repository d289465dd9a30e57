package nvidiasmi

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

const typesEvery = 30 * time.Second

// TypeSource is what Types asks; *Querier is one. Answers may be as old as oldest if no new one comes until ctx
// ends. With a context of WithoutCall, no new call is made.
type TypeSource interface {
	Displays(ctx context.Context, oldest time.Duration) (Displays, error)
	Details(ctx context.Context, oldest time.Duration) (Details, error)
}

// Types finds out the types of processes on GPUs with an active display, which only Details tells. What an answer
// says of a process is kept. The zero Types knows none. It is safe for concurrent use.
type Types struct {
	mu       sync.Mutex
	uses     map[gpuUse]knownUse
	displays Displays
	asked    time.Time // when it asked last
	asking   bool
}

type gpuUse struct {
	gpu   snapshot.GPUUUID
	pid   snapshot.PID
	start snapshot.StartTime // 0 where that is unknown
}

type knownUse struct {
	since time.Time            // when it was seen first
	kind  snapshot.ProcessType // empty if it isn't known
}

// Set sets what is known about displays and about the types of the processes of a snapshot. If it has to ask, it
// waits until ctx ends, and at most every 30 s. The types that are unknown then are pending on GPUs with an active
// display, and where that isn't known.
//
// Any user may be able to make nvidia-smi hang or fail at this question, and so may a sick GPU.
func (t *Types) Set(ctx context.Context, s *snapshot.Snapshot, gpus map[snapshot.DeviceIndex]snapshot.GPUUUID,
	now time.Time, source TypeSource,
) {
	if unknown, ask := t.follow(s, gpus, now); unknown {
		if !ask { // but the answer to an earlier question may have come
			ctx = WithoutCall(ctx)
		}
		t.learn(ctx, source)
		if ask {
			t.mu.Lock()
			t.asking = false
			t.mu.Unlock()
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.each(s, gpus, func(u *snapshot.DeviceUsage, key gpuUse) {
		if u.Type = t.uses[key].kind; u.Type == "" && !t.displays.dark(key.gpu) {
			u.Type = snapshot.TypePending
		}
	})
	for i := range s.Devices {
		if active := !t.displays.dark(gpus[s.Devices[i].Index]); t.displays.Active != nil {
			s.Devices[i].Display = &active
		}
	}
}

func (t *Types) each(s *snapshot.Snapshot, gpus map[snapshot.DeviceIndex]snapshot.GPUUUID,
	do func(*snapshot.DeviceUsage, gpuUse),
) {
	for i := range s.Processes {
		p := &s.Processes[i]
		for j := range p.Usage {
			do(&p.Usage[j], gpuUse{gpus[p.Usage[j].Index], p.PID, p.Start})
		}
	}
}

// follow notes which uses there are. It returns whether something is unknown about them, and whether the caller is
// to ask for it.
func (t *Types) follow(s *snapshot.Snapshot, gpus map[snapshot.DeviceIndex]snapshot.GPUUUID, now time.Time) (unknown,
	ask bool,
) {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.asked.IsZero() || now.Sub(t.asked) >= typesEvery
	uses := make(map[gpuUse]knownUse, len(t.uses))
	t.each(s, gpus, func(_ *snapshot.DeviceUsage, key gpuUse) {
		known, found := t.uses[key]
		if !found || key.start == 0 && (due || !known.kind.Draws()) { // the PID may be another process's by now
			known = knownUse{since: now}
		}
		uses[key] = known
		unknown = unknown || known.kind == "" && !(t.displays.dark(key.gpu) &&
			!t.displays.Time.Began.Before(known.since))
	})
	t.uses = uses
	if ask = unknown && due && !t.asking; ask {
		t.asking, t.asked = true, now
	}
	return unknown, ask
}

// learn asks for displays, and for types if a display is active on a GPU of which the type of a process is unknown.
func (t *Types) learn(ctx context.Context, source TypeSource) {
	displays, err := source.Displays(ctx, typesEvery)
	if err != nil || !t.light(displays) {
		return
	}
	details, err := source.Details(ctx, typesEvery)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, known := range t.uses {
		if known.kind == "" && !details.Time.Began.Before(known.since) {
			known.kind = cmp.Or(details.Drawing[key.pid], snapshot.TypeCompute)
			t.uses[key] = known
		}
	}
}

// light notes which displays are active, and returns whether the type of a process on such a GPU is unknown.
func (t *Types) light(displays Displays) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.displays = displays
	for key, known := range t.uses {
		if known.kind == "" && !displays.dark(key.gpu) {
			return true
		}
	}
	return false
}
