package enforcement

import (
	"context"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/leadership"
	"github.com/seed-3119e985/genv/cmd/genv/listeners"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/report"
	"github.com/seed-3119e985/genv/snapshot"
)

// Fleet is the hosts to enforce, and how they are reached.
type Fleet struct {
	Hosts  []remote.Host
	Link   controller.Link
	Fanout int // hosts that are asked at a time
	// LocalName is the name of this machine, if it is the only host: it has none in
	// Hosts, and goes by this one in the policy.
	LocalName     snapshot.Hostname
	StopAtFailure bool          // end a cycle at the first host that fails
	Quiet         bool          // don't print which hosts failed
	CycleLimit    time.Duration // after which a cycle that waits for no reports counts as stuck
	Progress      *render.Progress
	// Announce, if set, has the hosts told who enforces them and by what right, which is nil
	// for a single cycle.
	Announce func(id string, claim *fence.Claim)
	// Withdraw has the hosts told no more who enforces them: this controller only looks. It is
	// set if there is a Leader.
	Withdraw func()
	// Release, if set, has the hosts told that a controller with a claim has ended.
	Release func(context.Context)
}

// Setup is all that a run needs to know. It is read once, and again for a reload.
type Setup struct {
	Config
	Fleet
	// Leader, if it has a Key, is the election in which the run takes part: it acts only while it leads.
	Leader leadership.Config
	// Feed, if set, has the live state, and it is served where Listen says. A reload doesn't change them.
	Feed   *live.Feed
	Listen listeners.Config
	// OpenHistory, if set, keeps who used what in the folder of a loop's memory. A reload doesn't
	// change it.
	OpenHistory func(dir string) *History
	// LookOnly is for a Policy without rules in a DryRun: nothing is kept, and hosts that
	// are lost or back are all that is printed.
	LookOnly bool
}

// History keeps who used what.
type History struct {
	*usage.Recorder
	// Reader reads it for viewers. groups are the users of the policy's groups, as they are now.
	Reader func(groups func() map[string][]string) *report.Reader
}

// loops reports whether there is more than one cycle.
func (s *Setup) loops() bool { return s.Interval > 0 && s.Cycles != 1 }

func (s *Setup) policy() enforce.Policy {
	if s.LocalName != "" {
		return localPolicy{s.Policy, s.LocalName}
	}
	return s.Policy
}

// live is what viewers get to know of a setup.
func (s *Setup) live(p *command.Program) live.Options {
	return live.Options{Now: p.Now, Interval: s.Interval, Enforcing: !s.LookOnly, Policy: s.policy()}
}
