package live

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// lookEvery is how often is seen which GPUs compute nothing.
const lookEvery = time.Minute

type gpuKey struct {
	host  snapshot.Hostname
	index snapshot.DeviceIndex
}

// idle is since when a GPU computes nothing, for the same users.
type idle struct {
	users string
	since time.Time
}

// idleGPUs are those of the last look, and since when each computes nothing.
type idleGPUs struct {
	looked time.Time
	gpus   map[gpuKey]idle
}

// due reports whether it is time for a look.
func (l *idleGPUs) due(now time.Time) bool {
	return l.looked.IsZero() || now.Before(l.looked) || now.Sub(l.looked) >= lookEvery
}

// look sees which GPUs compute nothing. One of a host that failed is seen again when it answers.
func (l *idleGPUs) look(f *FleetState, now time.Time) {
	before := l.gpus
	l.looked, l.gpus = now, make(map[gpuKey]idle)
	for i := range f.Hosts {
		h := &f.Hosts[i]
		for j := range h.GPUs {
			g, key := &h.GPUs[j], gpuKey{h.Name, h.GPUs[j].Index}
			if g.State != gpus.Attached && g.State != gpus.Idle {
				continue
			}
			users := fmt.Sprintf("%q", g.Users())
			l.gpus[key] = idle{users, now}
			if known := before[key]; !known.since.IsZero() && known.users == users {
				l.gpus[key] = known
			}
		}
	}
}

// IdleSince implements Source.
func (f *Feed) IdleSince(host snapshot.Hostname, gpu snapshot.DeviceIndex) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.idle.gpus[gpuKey{host, gpu}].since
}
