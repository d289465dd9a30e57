package enforcement

import (
	"time"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
)

// registration is what the other controllers of an election get to know of this one.
func (l *loop) registration(self election.Candidate, setup *Setup) election.Registration {
	return election.Registration{
		Candidate: self, Host: l.self.Hostname, PID: l.self.PID, Version: l.program.Version,
		Since: l.self.Started.Round(time.Second).UTC(), Interval: setup.Interval.Seconds(), Hosts: len(setup.Hosts),
	}
}

// register notes a cycle that has ended.
func (p *part) register(cycle *controller.Cycle, now time.Time, setup *Setup) {
	if cycle.Stopped {
		return
	}
	interval := setup.Interval.Seconds()
	p.registrar.Set(func(r *election.Registration) {
		r.Cycled, r.Interval, r.Hosts = now.Round(time.Second).UTC(), interval, len(cycle.Cluster.Hosts)
	})
}
