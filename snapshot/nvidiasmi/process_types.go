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
	Devices(ctx context.Context, oldest time.Duration) (Listing, error)
	Details(ctx context.Context, oldest time.Duration) (Details, error)
}

// Types finds out the types of processes on GPUs with an active display, which only Details tells. What an answer
// says of a process is kept. The zero Types knows none. It is safe for concurrent use.
type Types struct {
	mu     sync.Mutex
	uses   map[gpuUse]knownUse
	gpus   Listing   // which says what displays are active
	asked  time.Time // when it asked last
	asking bool
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
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.asked.IsZero() || now.Sub(t.asked) >= typesEvery
	switch unknown := t.follow(s, gpus, now, due); {
	case unknown && due && !t.asking:
		t.asking, t.asked = true, now
		t.learn(ctx, source)
		t.asking = false
	case unknown: // the answer to an earlier question may have come
		t.learn(WithoutCall(ctx), source)
	}
	each(s, gpus, func(u *snapshot.DeviceUsage, key gpuUse) {
		if u.Type = t.uses[key].kind; u.Type == "" && !t.isDark(key.gpu) {
			u.Type = snapshot.TypePending
		}
	})
	for i := range s.Devices {
		if active := !t.isDark(gpus[s.Devices[i].Index]); t.gpus.GPUs != nil {
			s.Devices[i].Display = &active
		}
	}
}

func each(s *snapshot.Snapshot, gpus map[snapshot.DeviceIndex]snapshot.GPUUUID, do func(*snapshot.DeviceUsage, gpuUse)) {
	for i := range s.Processes {
		p := &s.Processes[i]
		for j := range p.Usage {
			do(&p.Usage[j], gpuUse{gpus[p.Usage[j].Index], p.PID, p.Start})
		}
	}
}

// isDark says whether no display is active on a GPU.
func (t *Types) isDark(gpu snapshot.GPUUUID) bool {
	for i := range t.gpus.GPUs {
		if g := &t.gpus.GPUs[i]; g.UUID == gpu {
			return g.Display != nil && !*g.Display
		}
	}
	return false
}

// follow notes which uses there are. It returns whether something is unknown about them.
func (t *Types) follow(s *snapshot.Snapshot, gpus map[snapshot.DeviceIndex]snapshot.GPUUUID, now time.Time, due bool) (
	unknown bool,
) {
	uses := make(map[gpuUse]knownUse, len(t.uses))
	each(s, gpus, func(_ *snapshot.DeviceUsage, key gpuUse) {
		known, found := t.uses[key]
		if !found || key.start == 0 && (due || !known.kind.Draws()) { // the PID may be another process's by now
			known = knownUse{since: now}
		}
		uses[key] = known
		wasDark := t.isDark(key.gpu) && !t.gpus.Time.Began.Before(known.since)
		unknown = unknown || known.kind == "" && !wasDark
	})
	t.uses = uses
	return unknown
}

// learn asks for displays, and for types if a display is active on a GPU of which the type of a process is unknown. It
// unlocks t while it waits.
func (t *Types) learn(ctx context.Context, source TypeSource) {
	t.mu.Unlock()
	gpus, err := source.Devices(ctx, typesEvery)
	t.mu.Lock()
	if err != nil {
		return
	}
	t.gpus = gpus
	for key, known := range t.uses {
		if known.kind == "" && !t.isDark(key.gpu) {
			t.learnTypes(ctx, source)
			return
		}
	}
}

func (t *Types) learnTypes(ctx context.Context, source TypeSource) {
	t.mu.Unlock()
	details, err := source.Details(ctx, typesEvery)
	t.mu.Lock()
	for key, known := range t.uses {
		if err == nil && known.kind == "" && !details.Time.Began.Before(known.since) {
			known.kind = cmp.Or(details.Drawing[key.pid], snapshot.TypeCompute)
			t.uses[key] = known
		}
	}
}
