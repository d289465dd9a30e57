package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// carryOut records what was concluded, sends it, and passes the events on. What can't
// be recorded is not sent, and the cycle does not count: its memory is dropped. With
// ActUnrecorded it is sent all the same.
func (c *Controller) carryOut(ctx context.Context, cycle *Cycle, next FleetMemory, events []enforce.Event) {
	visits := c.visits(cycle)
	items, err := c.recordBefore(cycle, events, visits)
	cycle.Unrecorded = err
	if err != nil && !c.ActUnrecorded {
		c.recordNothingDone(cycle, items)
		return
	}
	c.Memory, c.unsaved = next, true
	if !c.DryRun {
		c.addMessages(cycle, events, visits)
		c.send(ctx, cycle, visits)
	}
	c.emit(cycle, append(events, actingEvents(cycle, visits)...))
}

func (c *Controller) emit(cycle *Cycle, events []enforce.Event) {
	for _, sink := range c.Sinks {
		sink.Consume(cycle, events)
	}
}

// visit is what is sent to a host in a cycle: messages to its users, then a report.
type visit struct {
	cycle    int
	host     remote.Host // by the name that the cluster has
	through  remote.Host // by the name that answered
	order    int         // in the plan
	mail     mail
	report   *enforce.HostReport // nil for none
	items    []audit.Record      // of the report, as the log has them
	findings []enforce.Finding   // because of which it is sent

	deliveries []Delivery
	execution  agent.Execution
	err        error
}

// dispatches are the visits under way. The results of all come through one channel.
type dispatches struct {
	pending int
	results chan *visit
}

// visits are those of the hosts that have a report, by host; in a dry run there
// are none.
func (c *Controller) visits(cycle *Cycle) map[string]*visit {
	visits := make(map[string]*visit)
	if c.DryRun {
		return visits
	}
	findings := make(map[string]*enforce.Finding, len(cycle.Plan.Findings))
	for i := range cycle.Plan.Findings {
		findings[cycle.Plan.Findings[i].ID] = &cycle.Plan.Findings[i]
	}
	snapshots := make(map[snapshot.Hostname]*snapshot.Snapshot, len(cycle.Cluster.Hosts))
	for i := range cycle.Cluster.Hosts {
		snapshots[cycle.Cluster.Hosts[i].Name] = cycle.Cluster.Hosts[i].Snapshot
	}
	for i := range cycle.Plan.Reports {
		r := &cycle.Plan.Reports[i]
		r.Report.ID = fmt.Sprintf("%s/%d/%s", c.run, cycle.Number, r.Host)
		v := &visit{cycle: cycle.Number, order: i, report: r, items: audit.ReportRecords(r.Host, r.Report, snapshots[r.Host])}
		for j := range v.items {
			v.items[j].Report = r.Report.ID
		}
		for _, id := range r.Report.FindingIDs() {
			if f := findings[id]; f != nil {
				v.findings = append(v.findings, *f)
			}
		}
		visits[string(r.Host)] = v
	}
	return visits
}

// send is the choke point: the only place from which a host is changed. It does not
// wait for the hosts.
func (c *Controller) send(ctx context.Context, cycle *Cycle, visits map[string]*visit) {
	var hosts []remote.Host
	for _, h := range c.Hosts {
		if v := visits[h.Name]; v != nil {
			v.host, v.through = h, cycle.served[h.Name]
			hosts = append(hosts, h)
			if v.report != nil {
				c.Memory.Rules = c.Memory.Rules.Begin(*v.report, c.Now())
			}
		}
	}
	if c.sent.results == nil {
		c.sent.results = make(chan *visit)
	}
	c.sent.pending += len(hosts)
	c.save(len(hosts) > 0) // what a crash must not make be done twice
	link, results := c.Link, c.sent.results
	go remote.Each(context.WithoutCancel(ctx), hosts, c.Fanout, func(_ context.Context, h remote.Host) (struct{}, error) {
		v := visits[h.Name]
		v.make(ctx, link)
		results <- v
		return struct{}{}, nil
	})
}

// make makes the visit. A report that was begun is waited for, even if ctx ends.
func (v *visit) make(ctx context.Context, link Link) {
	v.deliveries = v.mail.send(ctx, link, v.through)
	switch {
	case v.report == nil:
	case ctx.Err() != nil:
		v.err = remote.Errorf(remote.Cancelled, "stopped before the report was sent: %w", context.Cause(ctx))
	default:
		v.execution, v.err = link.Execute(context.WithoutCancel(ctx), v.through, v.report.Report)
	}
}

// actingEvents are about the reports that are sent, in the order of the plan.
func actingEvents(cycle *Cycle, visits map[string]*visit) []enforce.Event {
	var events []enforce.Event
	for i := range cycle.Plan.Reports {
		r := &cycle.Plan.Reports[i]
		if v := visits[string(r.Host)]; v != nil {
			events = append(events, enforce.Event{Kind: enforce.EventActing, Host: r.Host, Report: &r.Report, Findings: v.findings})
		}
	}
	return events
}

// drain takes up the visits that ended since the last cycle.
func (c *Controller) drain(cycle *Cycle) {
	var done []*visit
	for c.sent.pending > 0 {
		select {
		case v := <-c.sent.results:
			c.sent.pending--
			done = append(done, v)
			continue
		default:
		}
		break
	}
	c.conclude(cycle, done)
}

// await waits for the visits under way, at most until a time unless that is zero.
// When ctx has ended it waits for all of them.
func (c *Controller) await(ctx context.Context, cycle *Cycle, until time.Time) {
	var late <-chan time.Time
	if !until.IsZero() && ctx.Err() == nil {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		late = timer.C
	}
	stopped := ctx.Done()
	var done []*visit
wait:
	for c.sent.pending > 0 {
		select {
		case v := <-c.sent.results:
			c.sent.pending--
			done = append(done, v)
		case <-stopped:
			stopped, late = nil, nil
		case <-late:
			break wait
		}
	}
	c.conclude(cycle, done)
	cycle.UnderWay = c.Memory.Rules.UnderWay
	unrecorded := ""
	if cycle.Unrecorded != nil {
		unrecorded = cycle.Unrecorded.Error()
	}
	cycle.RecordChanged, c.Memory.unrecorded = unrecorded != c.Memory.unrecorded, unrecorded
	c.save(false)
}

// saveEvery is how often a memory is saved that changes in every cycle.
const saveEvery = 10 * time.Second

// save saves the memory, if it changed and was not saved a short while ago, or at once
// if it is urgent.
func (c *Controller) save(urgent bool) {
	since := c.Now().Sub(c.saved)
	if !c.unsaved || c.Save == nil || c.DryRun || !urgent && since >= 0 && since < saveEvery {
		return
	}
	c.Save(&c.Memory)
	c.saved, c.unsaved = c.Now(), false
}

// conclude learns from what came of visits, and tells the sinks.
func (c *Controller) conclude(cycle *Cycle, done []*visit) {
	if len(done) == 0 {
		return
	}
	slices.SortFunc(done, func(a, b *visit) int {
		return cmp.Or(cmp.Compare(a.cycle, b.cycle), cmp.Compare(a.order, b.order), cmp.Compare(a.host.Name, b.host.Name))
	})
	c.unsaved = true
	var events []enforce.Event
	var records []audit.Record
	for _, v := range done {
		cycle.Notified = append(cycle.Notified, v.deliveries...)
		records = append(records, deliveryRecords(v.deliveries)...)
		c.learnOfDeliveries(v.deliveries)
		if v.report == nil {
			continue
		}
		a := ReportResult{Cycle: v.cycle, Host: v.report.Host, Report: v.report.Report, Execution: v.execution, Err: v.err, Findings: v.findings}
		a.Execution.Lines = shownLines(a.Report, a.Execution.Lines)
		cycle.Actions = append(cycle.Actions, a)
		c.Memory.Rules = c.Memory.Rules.End(a.Report.ID).Learn(*v.report, a.outcomes(), c.Now())
		records = append(records, audit.OutcomeRecords(v.items, a.outcomes())...)
		events = append(events, enforce.Event{
			Kind: enforce.EventOutcome, Host: a.Host, Report: &v.report.Report, Findings: v.findings,
			Lines: a.Execution.Lines, Warnings: a.Execution.Warnings, Outcomes: a.outcomes(), Err: a.Err,
		})
	}
	if err := c.record(cycle, records); err != nil {
		cycle.Unrecorded = err
	}
	cycle.records = records
	c.emit(cycle, events)
}
