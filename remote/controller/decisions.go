package controller

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/decision"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
)

// maxDecisions is how many ids of decisions a mail names for a finding.
const maxDecisions = 8

// nameDecisions adds to notifications the ids of the decisions that they are about, and to
// those of actions the record of the first one.
func nameDecisions(all map[snapshot.Hostname][]notify.Notification, visits []*visit, now time.Time) {
	items := make(map[snapshot.Hostname][]audit.Record, len(visits))
	for _, v := range visits {
		items[v.name] = v.items
	}
	for host, notifications := range all {
		for i := range notifications {
			n := &notifications[i]
			if n.Details.Pending {
				n.Details.Decisions = []string{decision.WarningID(n.ID)}
				continue
			}
			for _, item := range items[host] {
				if item.UID == nil || *item.UID != n.UID || !slices.Contains(item.IDs, n.ID) || len(n.Details.Decisions) == maxDecisions {
					continue
				}
				if n.Details.Decisions == nil {
					item.Time = now
					n.Details.Record = item.Decided().Lines()
				}
				n.Details.Decisions = append(n.Details.Decisions, decision.ID(item.Report, item.PID, item.EID, item.Device))
			}
		}
	}
}
