package controller

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/enforce/notify/texts"
	"github.com/seed-3119e985/genv/snapshot"
)

// Mailer sends mail; *mail.Post is one. Send must not wait.
type Mailer interface{ Send(mail.Letter) }

// Mailing says how users get mail, besides what is shown on their terminals. The zero
// Mailing sends none.
type Mailing struct {
	Mailer   Mailer // nil for none
	Rules    mail.Rules
	OptedOut func(snapshot.Username) bool
}

// Why a user gets no mail about a finding.
var (
	errOptedOut = errors.New("not sent: the policy lists the user under `opt-out`")
	errNoName   = errors.New("not sent: the host doesn't report the name of this user")
	errNoRoom   = errors.New("not sent: too many mails of this hour wait already")
)

// Texts are the texts of messages on terminals.
type Texts struct {
	Templates texts.Set
	Contact   string
	Failed    func(error) // is called for a template that fails, by several goroutines; nil for none
}

// terminalText is the message to one user on a host.
func (c *Controller) terminalText(list []notify.Notification) string {
	n := texts.Notice{User: texts.User(list[0].User, list[0].UID), Contact: c.Texts.Contact}
	for i := range list {
		if i == maxShownInMessage {
			n.More = len(list) - i
			break
		}
		n.Findings = append(n.Findings, list[i].Details)
	}
	return c.Texts.Templates.Text(texts.Terminal, n, func(texts.Notice) string { return textOf(list) }, c.Texts.Failed)
}

// mail has users mailed what they are notified of: at once, or later in a digest. In a dry
// run the Mailer only says so.
func (c *Controller) mail(cycle *Cycle, all map[snapshot.Hostname][]notify.Notification, now time.Time) {
	if c.Mailing.Mailer == nil {
		return
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
		if err := (recordWriter{c.Audit, c.Now}).write(cycle, refused); err != nil {
			cycle.Unrecorded = err
		}
	}
	for _, l := range c.Memory.Mail.Due(c.Mailing.Rules, now) {
		l.Run, l.Cycle = cycle.Run, cycle.Number
		c.unsaved = true
		c.Mailing.Mailer.Send(l)
	}
}

func (c *Controller) addMail(n *notify.Notification, now time.Time) error {
	switch {
	case n.User == "":
		return errNoName
	case c.Mailing.OptedOut(n.User):
		return errOptedOut
	case !c.Memory.Mail.Add(n.User, n.Details, c.Mailing.Rules, now):
		return errNoRoom
	}
	c.unsaved = true
	return nil
}
