package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

// Mailer sends mail. Send must not wait, and may be called by several goroutines.
type Mailer interface {
	Send(mail.Letter)
	// Unsent is called for a mail that may not be sent any more.
	Unsent(mail.Letter, error)
}

// Mailing says how users get mail, besides what is shown on their terminals. The zero
// Mailing sends none.
type Mailing struct {
	Mailer   Mailer // nil for none
	Rules    mail.Rules
	OptedOut func(snapshot.Username) bool
}

// Why a user gets no mail about a finding.
var (
	errNoName = errors.New("not sent: the host doesn't report the name of this user")
	errNoRoom = errors.New("not sent: too many mails of this hour wait already")
)

// mail returns the mails that are due, after it has added what users are notified of. From now
// on the memory says that they were sent.
func (c *Controller) mail(cycle *Cycle, all map[snapshot.Hostname][]notify.Notification, now time.Time) (due []mail.Letter) {
	if c.Mailing.Mailer == nil {
		return nil
	}
	var refused []audit.Record
	for _, host := range slices.Sorted(maps.Keys(all)) {
		for _, n := range all[host] {
			if err := c.addMail(&n, now); err != nil {
				refused = append(refused, audit.Record{
					Kind: audit.KindNotified, Channel: audit.ChannelMail, IDs: []string{n.ID}, Host: n.Host, User: n.User, UID: &n.UID, Text: n.Text, Reason: err.Error(),
				})
			}
		}
	}
	if len(refused) > 0 && !cycle.DryRun {
		c.record(cycle, refused)
	}
	due = c.Memory.Mail.Due(c.Mailing.Rules, now)
	for i := range due {
		due[i].Run, due[i].Cycle = cycle.Run, cycle.Number
	}
	return due
}

// post sends mails when the memory is safe that says so: whoever goes on with that memory sends
// them no second time. If another controller leads by then, it has them in its memory. In a dry
// run the Mailer only says what would be sent.
func (c *Controller) post(ctx context.Context, letters []mail.Letter, safe *saving) {
	send := func() {
		for _, l := range letters {
			if err := remote.MayBegin(ctx); err != nil {
				c.Mailing.Mailer.Unsent(l, err)
			} else {
				c.Mailing.Mailer.Send(l)
			}
		}
	}
	if safe == nil {
		send()
	} else {
		c.writer.After(safe, send)
	}
}

func (c *Controller) addMail(n *notify.Notification, now time.Time) error {
	switch {
	case n.User == "":
		return errNoName
	case c.Mailing.OptedOut(n.User):
		return mail.ErrOptedOut
	case !c.Memory.Mail.Add(n.User, n.Details, c.Mailing.Rules, now):
		return errNoRoom
	}
	c.unsaved = true
	return nil
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
