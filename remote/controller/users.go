package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// Delivery is what became of a notification.
type Delivery struct {
	notify.Notification
	Terminals int // on which it was shown
	Err       error
}

// mail is what the users of a host are sent in a cycle.
type mail struct {
	notifications []notify.Notification
	footers       map[snapshot.UID]string // the last line of each user's message
	suppressed    []Delivery              // not sent
}

func (m mail) empty() bool { return len(m.notifications)+len(m.suppressed) == 0 }

// addMessages adds to the visits what users are to be told of.
func (c *Controller) addMessages(cycle *Cycle, events []enforce.Event, visits map[string]*visit) {
	owners := notify.NewOwners(cycle.Cluster)
	list, now := make(map[string][]notify.Notification), c.Now()
	for i := range events {
		e := &events[i]
		if e.Kind != enforce.EventNotify {
			continue
		}
		for _, n := range notify.Notifications(e.Finding, owners, now) {
			if len(list[string(n.Host)]) < enforce.MaxEventsPerHost {
				list[string(n.Host)] = append(list[string(n.Host)], n)
			}
		}
	}
	for host, m := range c.Memory.Messages.admitAll(list, now) {
		if m.empty() {
			continue
		}
		if visits[host] == nil {
			visits[host] = &visit{cycle: cycle.Number, order: len(cycle.Plan.Reports)}
		}
		visits[host].mail = m
	}
}

// send sends the messages, one to each user. A failure is reported to the
// administrator, and does not keep the report from being sent.
func (m mail) send(ctx context.Context, link Link, host remote.Host) []Delivery {
	if len(m.notifications) == 0 {
		return m.suppressed
	}
	messages, of := messagesOf(m.notifications)
	for i := range messages {
		if footer := m.footers[messages[i].UID]; footer != "" {
			messages[i].Text += "\n" + footer
		}
	}
	terminals, err := link.Notify(ctx, host, messages)
	list := make([]Delivery, len(m.notifications), len(m.notifications)+len(m.suppressed))
	for i, n := range m.notifications {
		list[i] = Delivery{Notification: n, Err: err}
		if of[i] < len(terminals) {
			list[i].Terminals = terminals[of[i]]
		}
	}
	return append(list, m.suppressed...)
}

// messagesOf is one message for each user, since each rings a bell; and for each
// notification the index of its message.
func messagesOf(notifications []notify.Notification) (messages []agent.Message, of []int) {
	of = make([]int, len(notifications))
	users := make(map[snapshot.UID]int)
	var texts [][]notify.Notification
	for i, n := range notifications {
		at, known := users[n.UID]
		if !known {
			at = len(texts)
			users[n.UID], texts = at, append(texts, nil)
			messages = append(messages, agent.Message{UID: n.UID})
		}
		of[i], texts[at] = at, append(texts[at], n)
	}
	for i := range messages {
		messages[i].Text = textOf(texts[i])
	}
	return messages, of
}

// maxShownInMessage is how many findings one message shows in full.
const maxShownInMessage = 6

// textOf lists the findings, and once for all that have the same, the advice.
func textOf(notifications []notify.Notification) string {
	var lines []string
	shown := notifications[:min(len(notifications), maxShownInMessage)]
	for i, n := range shown {
		lines = append(lines, n.Text)
		if i+1 < len(shown) && shown[i+1].Advice == n.Advice {
			continue
		}
		if more := len(notifications) - len(shown); i+1 == len(shown) && more > 0 {
			lines = append(lines, fmt.Sprintf("And there are %d more; genv history shows what is done.", more))
		}
		lines = append(lines, n.Advice)
	}
	return strings.Join(lines, "\n")
}

// learnOfDeliveries has warnings sent again that may not have arrived, and does not
// count messages that were shown on no terminal. Messages about actions are not sent
// again: the action took place.
func (c *Controller) learnOfDeliveries(deliveries []Delivery) {
	var lost []string
	uncounted := make(map[recipient]bool)
	for _, d := range deliveries {
		if d.Err != nil && !errors.Is(d.Err, agent.ErrCannotNotify) && !errors.Is(d.Err, agent.ErrRefused) && !errors.Is(d.Err, errSuppressed) {
			lost = append(lost, d.ID)
		}
		if to := (recipient{string(d.Host), d.UID}); d.Terminals == 0 && !errors.Is(d.Err, errSuppressed) && !uncounted[to] {
			uncounted[to] = true
			c.Memory.Messages.refund(to)
		}
	}
	c.Memory.Rules = c.Memory.Rules.WarnAgain(lost)
}

// deliveryRecords are for the log.
func deliveryRecords(deliveries []Delivery) []audit.Record {
	var records []audit.Record
	for _, d := range deliveries {
		r := audit.Record{Kind: audit.KindNotified, IDs: []string{d.ID}, Host: d.Host, UID: &d.UID, Text: d.Text + "\n" + d.Advice}
		switch {
		case d.Err != nil:
			r.Reason = d.Err.Error()
		case d.Terminals == 0:
			r.Reason = "not logged in, or takes no messages (mesg n)"
		}
		records = append(records, r)
	}
	return records
}
