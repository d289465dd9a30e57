package enforce

import (
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Standing remembers from cycle to cycle how long things have stood: since when
// a finding is there, and since when a device is idle. Evaluate knows only the
// present; Judge knows what its Standing was shown before. The zero Standing
// has been shown nothing. It has no clock: times are arguments.
//
// It is only ever too lenient: after a restart, and for a host that did not answer,
// the times start again.
type Standing struct {
	findings map[string]*stood    // by the keys of evaluation.find
	idle     map[string]time.Time // by idleKey
	looked   time.Time            // when idle was last brought up to date
	released map[releasedDevice]bool
	stuck    map[stuckProcess]string    // why it cannot be ended
	met      map[snapshot.Hostname]bool // hosts that answered before
	asked    map[stuckProcess]time.Time // when SIGTERM was sent without effect
	cycle    int
	now      time.Time // of the last cycle
}

// stood is since when something is there without a break.
type stood struct {
	since  time.Time
	cycles int // in which it was there, this one included
	last   int // the cycle in which it was last there
}

// Judge is Evaluate with a memory. Call it once a cycle.
func (s *Standing) Judge(policy Policy, cluster snapshot.Cluster, now time.Time) Plan {
	s.cycle++
	s.now = now
	e := newEvaluation(policy, cluster, now, s)
	e.run()
	s.forget()
	return e.finish()
}

// stands counts a key of a finding in this cycle, and says since when it is there.
func (s *Standing) stands(id string, now time.Time) stood {
	if s.findings == nil {
		s.findings = make(map[string]*stood)
	}
	f := s.findings[id]
	if f == nil {
		f = &stood{since: now}
		s.findings[id] = f
	}
	if f.last != s.cycle {
		f.cycles++
		f.last = s.cycle
	}
	return *f
}

// forget drops the findings that are there no more.
func (s *Standing) forget() {
	for id, f := range s.findings {
		if f.last != s.cycle {
			delete(s.findings, id)
		}
	}
}

// Disregard takes back that findings were first seen in the last cycle, because
// nobody could be told of them in it: they are new in the next one.
func (s *Standing) Disregard() {
	for id, f := range s.findings {
		if f.cycles == 1 {
			delete(s.findings, id)
		}
	}
}

// due says whether a finding has stood for as long as warn wants, and if not,
// the earliest time at which it will have.
func (f stood) due(warn Warn, now time.Time) (bool, time.Time) {
	at := f.since.Add(warn.For)
	return f.cycles > warn.Cycles && !now.Before(at), at
}

// looksADuration is how often idleness must have been looked at, at least, in
// the time that makes it idleness: a device that was idle at both ends of a
// night in which nobody looked was not seen idle all night.
const looksADuration = 4

// watchIdle notes which attachments are idle now, and drops those that are
// not, or of which nobody knows. The map says how long each may be.
func (s *Standing) watchIdle(idle map[string]time.Duration, now time.Time) {
	if s.idle == nil {
		s.idle = make(map[string]time.Time)
	}
	gap := now.Sub(s.looked)
	s.looked = now
	for id := range s.idle {
		if after, still := idle[id]; !still || gap > after/looksADuration {
			delete(s.idle, id)
		}
	}
	for id := range idle {
		if _, known := s.idle[id]; !known {
			s.idle[id] = now
		}
	}
}
