package wake

import (
	"math"
	"time"
)

// The looks of a full cycle are spread at hosts that report events, so that the cycle takes
// neither the controller nor a machine or network that hosts share all at once: violations
// are dealt with meanwhile. Each has gap to itself, or less if that would take longer than a
// part of the interval or spreadMost. Shorter intervals than spreadFrom are not spread:
// whoever wants them wants the full cycle soon.
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

// Listens reports whether a look at a host would show nothing that its events don't: it is
// waited for, which is known to work, and has not woken since its last look. It may be called
// from any goroutine. A nil Watch waits for no host.
func (w *Watch) Listens(host string) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.hosts[host]
	return known != nil && int64(time.Since(w.begun)) >= known.since.Load()
}
