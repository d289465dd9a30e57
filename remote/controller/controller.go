package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// Link is what the controller needs of the genv on its hosts; *agent.Pool and
// agent.Commands provide it. Errors are *remote.Error.
type Link interface {
	// Snapshot asks a host for its snapshot.
	Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error)
	// Execute has a host carry out a report, once. An error of the class
	// OutcomeUnknown means that it may have been carried out, in part or whole.
	Execute(ctx context.Context, host remote.Host, report enforce.Report) (agent.Execution, error)
	// Notify shows messages to users of a host, and returns on how many terminals
	// each message was shown. agent.ErrCannotNotify: the host can't do it.
	Notify(ctx context.Context, host remote.Host, messages []agent.Message) (terminals []int, err error)
	// About returns what is known about a host without asking it.
	About(host remote.Host) agent.About
	// Identify asks a host what identifies its machine.
	Identify(ctx context.Context, host remote.Host) (agent.Identity, error)
}

// Controller enforces a policy on a fleet. Its fields are set before the first cycle;
// to change them, make another one and have it TakeOver.
type Controller struct {
	Hosts  []remote.Host
	Link   Link
	Fanout int // hosts at a time
	Policy enforce.Policy
	// DryRun does everything but the acting.
	DryRun bool
	// StopAtFailure ends a cycle at the first host that fails; nothing is done
	// then on any host.
	StopAtFailure bool
	Now           func() time.Time
	// Progress, if set, is told the number of hosts that answered or failed,
	// first of all that it is none; it is called from many goroutines.
	Progress func(done, total int)

	// Audit keeps the record; nil for none. What cannot be recorded is not
	// done, unless ActUnrecorded.
	Audit         Recorder
	ActUnrecorded bool
	// Sinks get the events of every cycle that counts, in their order.
	Sinks []Sink
	// Save, if set, keeps the memory: before reports are sent, otherwise every 10
	// seconds.
	Save func(*FleetMemory)

	Memory  FleetMemory
	unsaved bool // the memory changed since it was saved
	saved   time.Time
	run     string // the name of this run in the log
	sent    dispatches
}

// Cycle is one round: what was seen, concluded and done.
type Cycle struct {
	Run     string // of the controller, as in the log
	Number  int
	Start   time.Time
	Took    time.Duration // set by Loop
	Cluster snapshot.Cluster
	// Duplicates are the names that are left out of Cluster because another name
	// leads to the same machine.
	Duplicates []Duplicate
	// Via is how each host that answered was spoken with, where the Link knows.
	Via    map[snapshot.Hostname]agent.Via
	Plan   enforce.Plan
	DryRun bool
	// Actions are the reports that ended in this cycle, in the order of the plan;
	// some may have been sent in earlier ones. UnderWay are those that hosts are
	// still carrying out.
	Actions  []ReportResult
	UnderWay []enforce.HostReport
	// Stopped says that nothing was judged: because of StopAtFailure, or because the
	// run is ending.
	Stopped bool
	// Notified are the users who were notified of a finding, or could not be.
	Notified []Delivery
	// Unrecorded is why the record could not be kept. Without Actions, nothing
	// was done for that.
	Unrecorded error
	// RecordChanged says that Unrecorded is not that of the last cycle.
	RecordChanged bool

	served  map[string]remote.Host // under which name each host of Cluster answered
	records []audit.Record         // of what came of the last visits
}

// Decision is what the cycle does about a finding.
func (cycle *Cycle) Decision(f *enforce.Finding) enforce.Decision {
	d := f.Decision()
	if d == enforce.DecisionAct && cycle.DryRun {
		return enforce.DecisionDryRun
	}
	return d
}

// ReportResult is a report that was sent to its host, and what came of it.
type ReportResult struct {
	Cycle     int // in which it was sent
	Host      snapshot.Hostname
	Report    enforce.Report
	Execution agent.Execution
	Err       error
	// Findings are those because of which it was sent.
	Findings []enforce.Finding
}

// Cycle collects, judges and acts once, and waits for what came of it.
func (c *Controller) Cycle(ctx context.Context, number int) Cycle {
	cycle := c.begin(ctx, number)
	c.await(ctx, &cycle, time.Time{})
	return cycle
}

// TakeOver continues where another controller stopped, which must not be used any
// more: with its memory, and with its reports that are under way.
func (c *Controller) TakeOver(old *Controller) {
	c.Memory, c.unsaved, c.saved, c.run, c.sent = old.Memory, old.unsaved, old.saved, old.run, old.sent
}

// begin collects, judges and sends the reports.
func (c *Controller) begin(ctx context.Context, number int) Cycle {
	if c.run == "" {
		c.run = rand.Text()[:8]
	}
	cycle := Cycle{Run: c.run, Number: number, Start: c.Now(), DryRun: c.DryRun}
	c.drain(&cycle)
	machines, disputes := c.merge(&cycle, c.Collect(ctx))
	cycle.Via = c.via(&cycle)
	if ctx.Err() != nil || c.StopAtFailure && len(cycle.Cluster.Failed()) > 0 {
		cycle.Stopped = true
		return cycle
	}
	next := FleetMemory{Machines: machines, Messages: c.Memory.Messages, unrecorded: c.Memory.unrecorded}
	var events []enforce.Event
	cycle.Plan, next.Rules, events = enforce.Judge(c.Policy, cycle.Cluster, c.Memory.Rules, c.Now())
	for _, d := range disputes {
		cycle.Plan.Notes = append(cycle.Plan.Notes, d.Note)
		if d.isNew {
			events = append(events, enforce.Event{Kind: enforce.EventNote, Host: d.Host, Text: d.Text})
		}
	}
	c.carryOut(ctx, &cycle, next, events)
	return cycle
}

// Collect asks every host for its snapshot, in the order of Hosts.
func (c *Controller) Collect(ctx context.Context) snapshot.Cluster {
	results := Ask(ctx, c, c.Link.Snapshot)
	cluster := snapshot.Cluster{Hosts: make([]snapshot.Host, len(results))}
	for i, r := range results {
		cluster.Hosts[i] = snapshot.Host{Name: snapshot.Hostname(r.Host.Name), Labels: r.Host.Labels, Snapshot: r.Value, Err: r.Err}
		if r.Err != nil {
			cluster.Hosts[i].Snapshot = nil
		}
	}
	return cluster
}

// via asks the Link how it spoke with the hosts that answered.
func (c *Controller) via(cycle *Cycle) map[snapshot.Hostname]agent.Via {
	via := make(map[snapshot.Hostname]agent.Via)
	for _, h := range cycle.Cluster.Hosts {
		if h.Err != nil {
			continue
		}
		if v := c.Link.About(cycle.served[string(h.Name)]).Via; v != "" {
			via[h.Name] = v
		}
	}
	return via
}

// errStopped is the cause for hosts that were not asked to the end because
// another one failed under StopAtFailure.
var errStopped = errors.New("another host failed")

// Ask puts a question to every host of the controller, at most Fanout at a
// time, and keeps to StopAtFailure and Progress.
func Ask[T any](ctx context.Context, c *Controller, question func(context.Context, remote.Host) (T, error)) []remote.Result[T] {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	count := newCounter(len(c.Hosts), c.Progress)
	return remote.Each(ctx, c.Hosts, c.Fanout, func(ctx context.Context, h remote.Host) (T, error) {
		value, err := question(ctx, h)
		if err != nil && c.StopAtFailure && ctx.Err() == nil {
			cancel(&remote.Error{Class: remote.Cancelled, Err: errStopped})
		}
		count.add()
		return value, err
	})
}
