package companions

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// Mail mails a user about a finding or an action, or says in a dry run what it would send. It must not wait. Its error
// is why the user gets no mail.
type Mail func(n *notify.UserMessage, run string, round int) error

// Plan implements controller.Companion: it mails messages, and records those that fail.
func (send Mail) Plan(
	round *controller.Round, events []enforce.Event,
) (_ []*controller.Delivery, refused controller.Effects) {
	recipients := notify.NewRecipients(round.Cluster)
	all := notificationsOf(events, func(f *enforce.Finding) []notify.UserMessage {
		return notify.Messages(f, recipients, round.Now)
	})
	nameDecisions(all, round.Items, round.Now)
	for _, host := range slices.Sorted(maps.Keys(all)) {
		for i := range all[host] {
			n := &all[host][i]
			if err := send(n, round.Run, round.Number); err != nil && !round.DryRun {
				refused.Records = append(refused.Records, audit.Record{
					Kind: audit.KindNotified, Channel: audit.ChannelMail, IDs: []string{n.ID}, Host: n.Host,
					User: n.User, UID: &n.UID, Text: n.Shown(), Reason: err.Error(),
				})
			}
		}
	}
	return nil, refused
}

// Learn implements controller.Companion.
func (Mail) Learn(*controller.Round, *controller.Delivery) controller.Effects {
	return controller.Effects{}
}

const maxDecisions = 8 // in a mail about a finding

// nameDecisions adds to notifications the ids of their decisions, and the record of the first action.
func nameDecisions(all map[snapshot.Hostname][]notify.UserMessage, done []audit.Record, now time.Time) {
	items := make(map[snapshot.Hostname][]audit.Record)
	for i := range done {
		items[done[i].Host] = append(items[done[i].Host], done[i])
	}
	for host, notifications := range all {
		for i := range notifications {
			n := &notifications[i]
			if n.Pending {
				n.Decisions = []string{audit.WarningID(n.ID)}
				continue
			}
			for _, item := range items[host] {
				if item.UID == nil || *item.UID != n.UID || !slices.Contains(item.IDs, n.ID) ||
					len(n.Decisions) == maxDecisions {
					continue
				}
				if n.Decisions == nil {
					item.Time = now
					n.Record = item.Decided().Lines()
				}
				n.Decisions = append(n.Decisions, audit.DecisionID(item.Order, item.PID, item.EID, item.Device))
			}
		}
	}
}
