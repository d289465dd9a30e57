package controller

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

// Recorder keeps the record; *audit.Log is one.
type Recorder interface {
	Append(...audit.Record) error
	// Reserve makes sure that as many bytes can be appended.
	Reserve(bytes int64) error
}

// bytesAnItem is what the records of an item's outcome need at most, but for a
// host that says a lot.
const bytesAnItem = 2 << 10

// recordIntentions writes down what was found and decided, and what is about to
// be done, before anything is done. It returns the latter: those records may
// be written even when there is an error.
func (c *Controller) recordIntentions(cycle *Cycle) (items []audit.Record, err error) {
	if c.Audit == nil {
		return nil, nil
	}
	if err := c.Audit.Append(); err != nil {
		return nil, err // what waits to be written is enough
	}
	records := c.findingRecords(cycle)
	records = append(records, c.failureRecords(cycle)...)
	if !cycle.DryRun {
		for _, r := range cycle.Plan.Reports {
			items = append(items, c.itemRecords(cycle, r)...)
		}
	}
	if err := c.Audit.Append(c.stamp(cycle, append(records, items...))...); err != nil {
		return items, err
	}
	if len(items) == 0 {
		return nil, nil
	}
	return items, c.Audit.Reserve(int64(len(items)) * bytesAnItem)
}

// recordNothingDone closes the records of what was not done after all.
func (c *Controller) recordNothingDone(cycle *Cycle, intended []audit.Record, why error) {
	outcomes := make([]enforce.Outcome, len(intended))
	for i := range outcomes {
		outcomes[i] = enforce.Outcome{Status: enforce.StatusFailed, Reason: fmt.Sprintf("nothing was done: %v", why)}
	}
	records := c.stamp(cycle, audit.Outcomes(intended, outcomes))
	_ = c.Audit.Append(records...) // they wait to be written with the rest
}

// stamp gives records what all records of a cycle have.
func (c *Controller) stamp(cycle *Cycle, records []audit.Record) []audit.Record {
	now := c.Now().UTC()
	for i := range records {
		records[i].Time, records[i].Run, records[i].Cycle = now, c.run, cycle.Number
	}
	return records
}

// findingRecords are the findings that are new, on which something else was
// decided than before, or because of which something is done; and those that
// are there no more.
func (c *Controller) findingRecords(cycle *Cycle) []audit.Record {
	if c.decided == nil {
		c.decided = make(map[string]decided)
	}
	var records []audit.Record
	seen := make(map[string]bool, len(cycle.Plan.Findings))
	recorded, leftOut := make(map[snapshot.Hostname]int), make(map[snapshot.Hostname]int)
	for i := range cycle.Plan.Findings {
		f := &cycle.Plan.Findings[i]
		seen[f.ID] = true
		d := cycle.Decision(f)
		if before, known := c.decided[f.ID]; known && before.decision == d && d != audit.DecisionAct {
			continue
		}
		if recorded[f.Host] >= maxFindingsRecorded && d != audit.DecisionAct {
			leftOut[f.Host]++
			continue
		}
		recorded[f.Host]++
		c.decided[f.ID] = decided{f.Host, d}
		records = append(records, audit.Record{
			Kind: audit.KindFinding, IDs: []string{f.ID}, Rule: f.Rule, Decision: d, Host: f.Host, User: f.User, UID: f.UID,
			PID: f.PID, EID: f.EID, Text: f.Line(), Finding: f,
		})
	}
	for _, host := range slices.Sorted(maps.Keys(leftOut)) {
		text := fmt.Sprintf("and %d findings more on this host", leftOut[host])
		records = append(records, audit.Record{Kind: audit.KindFinding, Host: host, Text: text})
	}
	return append(records, c.clearedRecords(cycle, seen)...)
}

// maxFindingsRecorded is how many new findings of a host a cycle records beside
// those it acts on: a host that makes up processes must not push everybody's
// history out of the log.
const maxFindingsRecorded = 256

// decided is what was recorded of a finding last.
type decided struct {
	host     snapshot.Hostname
	decision audit.Decision
}

// clearedRecords are of findings that are gone. Those of a host that did not
// answer may still be there.
func (c *Controller) clearedRecords(cycle *Cycle, seen map[string]bool) []audit.Record {
	var gone []string
	missing := make(map[snapshot.Hostname]bool)
	for _, h := range cycle.Cluster.Failed() {
		missing[h.Name] = true
	}
	for id, d := range c.decided {
		if !seen[id] && !missing[d.host] {
			gone = append(gone, id)
		}
	}
	slices.Sort(gone)
	var records []audit.Record
	for _, id := range gone {
		records = append(records, audit.Record{Kind: audit.KindCleared, IDs: []string{id}, Host: c.decided[id].host})
		delete(c.decided, id)
	}
	return records
}

// Decision is what the cycle does about a finding.
func (cycle *Cycle) Decision(f *enforce.Finding) audit.Decision {
	switch {
	case f.Held:
		return audit.DecisionHold
	case f.Pending:
		return audit.DecisionWait
	case len(f.Terminate)+len(f.Detach) == 0 && len(f.Stuck) > 0:
		return audit.DecisionStuck
	case len(f.Terminate)+len(f.Detach) == 0:
		return audit.DecisionNone
	case cycle.DryRun:
		return audit.DecisionDryRun
	}
	return audit.DecisionAct
}

// failureRecords are of hosts that did not answer, when that begins; of names that
// turn out to be the same machine, once; and, in every cycle, of users and hosts
// whose actions safety limits hold back.
func (c *Controller) failureRecords(cycle *Cycle) []audit.Record {
	var records []audit.Record
	failing := make(map[snapshot.Hostname]bool)
	for _, h := range cycle.Cluster.Failed() {
		failing[h.Name] = true
		if !c.failing[h.Name] {
			records = append(records, audit.Record{Kind: audit.KindFailed, Host: h.Name, Reason: fmt.Sprintf("%s: %v", remote.ClassOf(h.Err), h.Err)})
		}
	}
	c.failing = failing
	for _, d := range cycle.Duplicates {
		if d.New {
			records = append(records, audit.Record{Kind: audit.KindDuplicate, Host: d.Name, Text: d.String()})
		}
	}
	for _, h := range slices.Concat(cycle.Plan.HeldUsers, cycle.Plan.HeldHosts) {
		records = append(records, audit.Record{Kind: audit.KindHeld, User: h.User, Host: h.Host, Text: h.String(), Reason: h.Because})
	}
	return records
}

// reportID joins the items of what a host is sent in a cycle with what came of
// them.
func (c *Controller) reportID(cycle *Cycle, host snapshot.Hostname) string {
	return fmt.Sprintf("%s/%d/%s", c.run, cycle.Number, host)
}

// itemRecords are the items of a report in the order of its outcomes.
func (c *Controller) itemRecords(cycle *Cycle, r enforce.HostReport) []audit.Record {
	var s *snapshot.Snapshot
	if i := slices.IndexFunc(cycle.Cluster.Hosts, func(h snapshot.Host) bool { return h.Name == r.Host }); i >= 0 {
		s = cycle.Cluster.Hosts[i].Snapshot
	}
	records := audit.Items(r.Host, r.Report, s)
	for i := range records {
		records[i].Report = c.reportID(cycle, r.Host)
	}
	return records
}
