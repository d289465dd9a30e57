package wake

import "time"

// A host is asked at most once per floor. After burst answers without a change it is asked at
// most once per refill: our hosts say themselves when a look is worth it, and stay below that.
const (
	floor  = 100 * time.Millisecond
	burst  = 50
	refill = 500 * time.Millisecond
)

// pacing is when a host may be asked again.
type pacing struct {
	last time.Time // it was asked
	left int       // answers without a change before it is asked less often
	from time.Time // since when left grows
}

func newPacing(now time.Time) pacing { return pacing{left: burst, from: now} }

// before is how long to wait before the host is asked.
func (p *pacing) before(now time.Time) time.Duration {
	if grown := int(now.Sub(p.from) / refill); grown > 0 {
		p.left, p.from = min(p.left+grown, burst), p.from.Add(time.Duration(grown)*refill)
	}
	wait := p.last.Add(floor).Sub(now)
	if p.left <= 0 {
		wait = max(wait, p.from.Add(refill).Sub(now))
	}
	return max(wait, 0)
}

// asked notes that it was asked.
func (p *pacing) asked(now time.Time, changed bool) {
	p.last = now
	if !changed {
		p.left = max(p.left-1, 0)
	}
}
