package proc

import "time"

// Later moves the stalls that are known into the past.
func (r *Reader) Later(by time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, s := range r.stalled {
		s.at = s.at.Add(-by)
		r.stalled[key] = s
	}
}
