package controller

import (
	"errors"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// MaxMemoryAge is how old a memory may be to be continued: what happened meanwhile is not
// known, so "without a break" would be a guess.
const MaxMemoryAge = time.Hour

// FleetMemory is what a controller keeps from cycle to cycle, and on disk from run to run.
// It is replaced after a cycle that counts: one that was judged, and recorded if there
// is a record. Otherwise it stays as it was, as if there had been no such cycle.
type FleetMemory struct {
	Rules    enforce.Memory       `json:"rules"`
	Machines Machines             `json:"machines"`
	Messages Budget[snapshot.UID] `json:"messages"`
	// Operator is what operators asked for that lasts. It has a file of its own, since
	// it doesn't age: see statedir.
	Operator operator.State `json:"-"`

	guards map[snapshot.Hostname]trackedGuard // in this role
}

// learnOfDeliveries marks warnings that may not have arrived, so that they are sent
// again, and does not count messages that were shown on no terminal. Messages about
// actions are not sent again: the action has taken place.
func (m *FleetMemory) learnOfDeliveries(deliveries []Delivery) {
	var lost []string
	type recipient struct {
		host snapshot.Hostname
		uid  snapshot.UID
	}
	uncounted := make(map[recipient]bool)
	for _, d := range deliveries {
		if errors.Is(d.Err, errSuppressed) {
			continue
		}
		if d.Err != nil && !d.Information && !errors.Is(d.Err, agent.ErrCannotNotify) && !errors.Is(d.Err, agent.ErrRefused) {
			lost = append(lost, d.ID)
		}
		if to := (recipient{d.Host, d.UID}); d.Terminals == 0 && !uncounted[to] {
			uncounted[to] = true
			m.Messages.Refund(to.host, to.uid, 1)
		}
	}
	m.Rules = m.Rules.WarnAgain(lost)
}
