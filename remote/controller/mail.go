package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
)

// Mailer sends mail. Add must not wait. Its error is why the user gets no mail.
type Mailer interface {
	Add(n *notify.Notification, run string, cycle int) error
}

// mail passes on what users are notified of, and records who gets no mail. In a dry run the Mailer only says what would
// be sent.
func (c *Controller) mail(cycle *Cycle, all map[snapshot.Hostname][]notify.Notification) {
	if c.Mailer == nil {
		return
	}
	var refused []audit.Record
	for _, host := range slices.Sorted(maps.Keys(all)) {
		for i := range all[host] {
			n := &all[host][i]
			if err := c.Mailer.Add(n, cycle.Run, cycle.Number); err != nil {
				refused = append(refused, audit.Record{
					Kind: audit.KindNotified, Channel: audit.ChannelMail, IDs: []string{n.ID}, Host: n.Host, User: n.User, UID: &n.UID,
					Text: n.Text, Reason: err.Error(),
				})
			}
		}
	}
	if len(refused) > 0 && !cycle.DryRun {
		c.record(cycle, refused)
	}
}

// maxDecisions is how many ids of decisions a mail names for a finding.
const maxDecisions = 8

// nameDecisions adds to notifications the ids of the decisions that they are about, and to
// those of actions the record of the first one.
func nameDecisions(all map[snapshot.Hostname][]notify.Notification, orders []*sentOrder, now time.Time) {
	items := make(map[snapshot.Hostname][]audit.Record, len(orders))
	for _, o := range orders {
		items[o.Host] = o.items
	}
	for host, notifications := range all {
		for i := range notifications {
			n := &notifications[i]
			if n.Details.Pending {
				n.Details.Decisions = []string{audit.WarningID(n.ID)}
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
				n.Details.Decisions = append(n.Details.Decisions, audit.DecisionID(item.Order, item.PID, item.EID, item.Device))
			}
		}
	}
}
