package wake

import (
	"math"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// A host is asked at most once per floor. After burst answers without a change it is asked at
// most once per refill: our hosts say themselves when a look is worth it, and stay below that.
const (
	floor  = 100 * time.Millisecond
	burst  = 50
	refill = 500 * time.Millisecond
)

// The more a host reports, the less often it is asked: decoding and judging an entry takes
// the controller some 40 µs, and hosts can make entries up. Hosts with more than maxEntries
// are left to full cycles, since judging them would keep others waiting.
const (
	perEntry   = 200 * time.Microsecond
	maxEntries = 4000
	usagesEach = 16
	textEach   = 1024 // bytes
)

// entries is how much there is to decode and judge in a snapshot. Users can make what
// processes report long, too: usagesEach and textEach of that take as long as an entry.
func entries(s *snapshot.Snapshot) int {
	if s == nil {
		return 0
	}
	n := len(s.Processes) + len(s.Environments) + len(s.Devices)
	for i := range s.Processes {
		p := &s.Processes[i]
		n += len(p.Usage)/usagesEach + (len(p.Name)+len(p.Command)+len(p.PrivateCommand))/textEach
	}
	for i := range s.Environments {
		n += len(s.Environments[i].PIDs) + len(s.Environments[i].KernelIDs)
	}
	for i := range s.Devices {
		n += len(s.Devices[i].Attachments)
	}
	return n
}

// pacing is when a host may be asked again.
type pacing struct {
	last  time.Time     // it was asked
	pause time.Duration // until it is asked again, at least
	left  int           // answers without a change before it is asked less often
	from  time.Time     // since when left grows
}

func newPacing(now time.Time) pacing { return pacing{pause: floor, left: burst, from: now} }

// before is how long to wait before the host is asked.
func (p *pacing) before(now time.Time) time.Duration {
	if grown := int(now.Sub(p.from) / refill); grown > 0 {
		p.left, p.from = min(p.left+grown, burst), p.from.Add(time.Duration(grown)*refill)
	}
	wait := p.last.Add(p.pause).Sub(now)
	if p.left <= 0 {
		wait = max(wait, p.from.Add(refill).Sub(now))
	}
	return max(wait, 0)
}

// asked notes that it was asked, and for how many entries.
func (p *pacing) asked(now time.Time, changed bool, entries int) {
	p.last, p.pause = now, max(floor, time.Duration(entries)*perEntry)
	if !changed {
		p.left = max(p.left-1, 0)
	}
}

// The looks of a full cycle are spread at hosts that report events, so that the cycle takes neither the controller nor
// a machine or network that hosts share all at once: violations are dealt with meanwhile. Each has gap to itself, or
// less if that would take longer than a part of the interval or spreadMost. Shorter intervals than spreadFrom are not
// spread: who wants them wants the full cycle soon.
const (
	gap        = 25 * time.Millisecond
	part       = 4
	spreadMost = 5 * time.Second
	spreadFrom = 5 * time.Second
)

// Spread is the time between the first looks of a full cycle at two of n hosts that listen.
func Spread(n int, interval time.Duration) time.Duration {
	if n < 2 || interval < spreadFrom {
		return 0
	}
	return min(gap, min(interval/part, spreadMost)/time.Duration(n))
}

// A host that can't be waited for says so within refusal, as a rule.
const (
	refusal = time.Second
	never   = math.MaxInt64
)

// Listens reports whether a look at a host would show nothing that its events don't: it is waited for, which is known
// to work, and has not woken since its last look. It may be called from any goroutine. A nil Watch waits for no host.
func (w *Watch) Listens(host string) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.hosts[host]
	return known != nil && int64(time.Since(w.begun)) >= known.since.Load()
}
