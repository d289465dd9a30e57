package nvidiasmi

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

const (
	typesEvery  = 30 * time.Second
	typesWithin = time.Second // for Set: much less than rules wait for a snapshot
)

// TypeSource is a *Querier. If no answer comes until ctx ends, one as old as oldest serves. WithoutCall prevents new
// calls.
type TypeSource interface {
	Devices(ctx context.Context, oldest time.Duration) (Listing, error)
	Details(ctx context.Context, oldest time.Duration) (Details, error)
}

// Types finds and remembers the types of processes on GPUs with an active display. The zero Types knows none. It is
// safe for concurrent use.
type Types struct {
	mu     sync.Mutex
	uses   map[gpuUse]knownUse
	gpus   Listing   // with their displays
	last   Details   // the last answer about types
	asked  time.Time // when it asked last
	asking bool

	ended   map[gpuAccount]bool // those with a process that ended without a type since the last answer
	untyped map[gpuAccount]int  // after how many answers in a row
}

type gpuAccount struct {
	gpu snapshot.GPUUUID
	uid snapshot.UID
}

// maxUntyped is the number of answers after which an account is known for short processes, which end before nvidia-smi
// tells their type. Set waits for the types of others.
const maxUntyped = 3

type gpuUse struct {
	gpu   snapshot.GPUUUID
	pid   snapshot.PID
	start snapshot.StartTime // 0 if unknown
}

type knownUse struct {
	since time.Time            // of the first look with it
	kind  snapshot.ProcessType // empty if unknown
	uid   *snapshot.UID
}

// Set sets displays and types. If it has to ask, it waits for a second, at most every 30 s: any user, or a sick GPU,
// can make nvidia-smi hang at this question. Unknown types are pending on GPUs with an active or unknown display. But
// those of accounts with only short processes there are compute, unless mayDraw says that they may draw, or that this
// is unknown. drawing has the processes that draw according to nvidia-smi. Without mayDraw all may.
func (t *Types) Set(ctx context.Context, s *snapshot.Snapshot, gpus map[snapshot.DeviceIndex]snapshot.GPUUUID,
	now time.Time, source TypeSource,
	mayDraw func(p *snapshot.Process, drawing map[snapshot.PID]snapshot.ProcessType) bool,
) {
	short, drawing := t.set(ctx, s, gpus, now, source)
	if mayDraw == nil {
		return
	}
	for use, process := range short { // mayDraw reads files: other looks don't wait for it
		if !mayDraw(process, drawing) {
			use.Type = snapshot.TypeCompute
		}
	}
}

// set is Set without mayDraw. short has the uses without a type of accounts with only short processes.
func (t *Types) set(ctx context.Context, s *snapshot.Snapshot, gpus map[snapshot.DeviceIndex]snapshot.GPUUUID,
	now time.Time, source TypeSource,
) (short map[*snapshot.DeviceUsage]*snapshot.Process, drawing map[snapshot.PID]snapshot.ProcessType) {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.asked.IsZero() || now.Sub(t.asked) >= typesEvery
	switch unknown := t.follow(s, gpus, now, due); {
	case unknown && due && !t.asking:
		t.asking, t.asked = true, now
		within, cancel := context.WithTimeout(ctx, typesWithin)
		t.learn(within, source)
		cancel()
		t.asking = false
	case unknown: // an earlier question may have been answered
		t.learn(WithoutCall(ctx), source)
	}
	short = map[*snapshot.DeviceUsage]*snapshot.Process{}
	each(s, gpus, func(p *snapshot.Process, u *snapshot.DeviceUsage, key gpuUse) {
		if u.Type = t.uses[key].kind; u.Type != "" || t.isDark(key.gpu) {
			return
		}
		u.Type = snapshot.TypePending
		if p.UID != nil && t.untyped[gpuAccount{key.gpu, *p.UID}] >= maxUntyped {
			short[u] = p
		}
	})
	for i := range s.Devices {
		if active := !t.isDark(gpus[s.Devices[i].Index]); t.gpus.GPUs != nil {
			s.Devices[i].Display = &active
		}
	}
	return short, t.last.Drawing
}

func each(s *snapshot.Snapshot, gpus map[snapshot.DeviceIndex]snapshot.GPUUUID,
	do func(*snapshot.Process, *snapshot.DeviceUsage, gpuUse),
) {
	for i := range s.Processes {
		p := &s.Processes[i]
		for j := range p.Usage {
			do(p, &p.Usage[j], gpuUse{gpus[p.Usage[j].Index], p.PID, p.Start})
		}
	}
}

// isDark says whether a GPU's display is certainly inactive.
func (t *Types) isDark(gpu snapshot.GPUUUID) bool {
	for i := range t.gpus.GPUs {
		if g := &t.gpus.GPUs[i]; g.UUID == gpu {
			return g.Display != nil && !*g.Display
		}
	}
	return false
}

// follow notes the present uses, and says whether the type of one is unknown.
func (t *Types) follow(
	s *snapshot.Snapshot, gpus map[snapshot.DeviceIndex]snapshot.GPUUUID, now time.Time, due bool,
) (unknown bool) {
	uses := make(map[gpuUse]knownUse, len(t.uses))
	each(s, gpus, func(p *snapshot.Process, _ *snapshot.DeviceUsage, key gpuUse) {
		known, found := t.uses[key]
		if !found || key.start == 0 && (due || !known.kind.Draws()) { // the PID may have been reused
			known = knownUse{since: now, uid: p.UID}
		}
		uses[key] = known
		wasDark := t.isDark(key.gpu) && !t.gpus.Time.Began.Before(known.since)
		unknown = unknown || known.kind == "" && !wasDark
	})
	for key, known := range t.uses {
		if _, runs := uses[key]; !runs && known.kind == "" && known.uid != nil && key.start != 0 && !t.isDark(key.gpu) {
			if t.ended == nil {
				t.ended = map[gpuAccount]bool{}
			}
			t.ended[gpuAccount{key.gpu, *known.uid}] = true
		}
	}
	t.uses = uses
	return unknown
}

// learn asks for displays, and for types if one is active where a type is unknown. It unlocks t while it waits.
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
	if err != nil {
		return
	}
	for key, known := range t.uses {
		if known.kind == "" && !details.Time.Began.Before(known.since) {
			known.kind = cmp.Or(details.Drawing[key.pid], snapshot.TypeCompute)
			t.uses[key] = known
		}
	}
	if details.Time.Began.After(t.last.Time.Began) {
		untyped := make(map[gpuAccount]int, len(t.ended))
		for account := range t.ended {
			untyped[account] = t.untyped[account] + 1
		}
		t.last, t.untyped, t.ended = details, untyped, nil
	}
}
