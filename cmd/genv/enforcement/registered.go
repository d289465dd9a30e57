package enforcement

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
)

// registration is what the other controllers of an election get to know of this one.
func (l *loop) registration(self election.Candidate, setup *Setup) election.Registration {
	r := election.Registration{
		Candidate: self, Host: l.self.Hostname, PID: l.self.PID, Version: l.program.Version,
		Since: l.self.Started.Truncate(time.Second).UTC(), Hosts: len(setup.Hosts),
	}
	configured(&r, setup)
	return r
}

// unregistered says why the other controllers don't get to know of this one.
func (l *loop) unregistered(err error) {
	l.log.Warn().AnErr("etcd", err).Msg("etcd refuses to register this controller: `genv remote doctor` doesn't show it as it is")
}

// configured has a registration say how the controller is configured: a standby with other hosts
// or another policy than the leader would enforce something else after a fail-over.
func configured(r *election.Registration, setup *Setup) {
	r.Interval, r.HostsDigest, r.Policy = setup.Interval.Seconds(), digestOf(setup.Hosts), setup.Policy.Digest()
}

// configure registers another configuration.
func (p *participation) configure(setup *Setup) {
	if p != nil && p.registrar != nil {
		p.registrar.Set(func(r *election.Registration) { configured(r, setup) })
	}
}

// digestOf is the same for the same hosts in any order.
func digestOf(hosts []remote.Host) string {
	names := make([]string, 0, len(hosts))
	for _, h := range hosts {
		names = append(names, h.Name)
	}
	slices.Sort(names)
	sum := sha256.Sum256([]byte(strings.Join(names, "\n")))
	return hex.EncodeToString(sum[:8])
}

// register notes a cycle that has ended.
func (p *participation) register(cycle *controller.Cycle, now time.Time) {
	if cycle.Stopped {
		return
	}
	p.registrar.Set(func(r *election.Registration) { cycled(r, cycle, now) })
}

// cycled has a registration say what came of a cycle.
func cycled(r *election.Registration, cycle *controller.Cycle, now time.Time) {
	answered := len(cycle.Cluster.Answered())
	r.Cycled, r.Hosts, r.Answered = now.Truncate(time.Second).UTC(), len(cycle.Cluster.Hosts), &answered
}
