package enforcement

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/metrics"
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
	// set if Elect is.
	Withdraw func()
	// Elect, if set, takes part in an election: the run acts only while it leads.
	Elect func(self election.Candidate) *Election
	// Release, if set, has the hosts told that a controller with a claim has ended.
	Release func(context.Context)
}

// Setup is all that a run needs to know. It is read once, and again for a reload.
type Setup struct {
	Config
	Fleet
	// Feed, if set, has the live state, and Viewers serve it. A reload doesn't change them.
	Feed    *live.Feed
	Viewers Viewers
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

// Viewers serve the live state of a run to people and programs.
type Viewers interface {
	// Asked reports whether a flag or the environment asks for them, so that it is worth
	// saying where they listen.
	Asked() bool
	// Open serves a run until closeAll. addresses are where, for people. After an error
	// nothing is served, and the run doesn't begin.
	Open(ctx context.Context, run Running, log zerolog.Logger) (addresses []string, closeAll func(), err error)
}

// Running is what viewers get of a run.
type Running struct {
	Feed     *live.Feed
	Counters *metrics.Counters
	Queue    *controller.Queue // takes what operators ask for
	LookOnly bool              // it changes nothing, whatever operators ask for
	History  *History          // nil for none
	// Groups are the users of the policy's groups, as they are now. It is safe for concurrent use.
	Groups func() map[string][]string
}
