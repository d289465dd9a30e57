package wake

import (
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
		n += len(p.Usage)/usagesEach + (len(p.Name)+len(p.Command))/textEach
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
