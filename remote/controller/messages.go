package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// Delivery is what became of a notification.
type Delivery struct {
	notify.Notification
	Terminals int  // on which it was shown
	Kept      bool // for the next login of the user
	Err       error
}

// batch is what the users of a host are sent in a cycle: one message for each, since each rings a bell.
type batch struct {
	host       snapshot.Hostname
	messages   []agent.Message
	about      [][]notify.Notification // that each message is about
	suppressed []notify.Notification   // not sent
	shown      []agent.Shown           // what became of each message
}

// addNotifications adds what users are to be notified of, by host.
func addNotifications(list map[snapshot.Hostname][]notify.Notification, events []enforce.Event, of func(*enforce.Finding) []notify.Notification) {
	for i := range events {
		if events[i].Kind != enforce.EventNotify {
			continue
		}
		for _, n := range of(events[i].Finding) {
			if len(list[n.Host]) < safety.MaxEventsPerHost {
				list[n.Host] = append(list[n.Host], n)
			}
		}
	}
}

// batch separates what users of a host are sent from what is suppressed, and counts it.
func (c *Controller) batch(host snapshot.Hostname, notifications []notify.Notification, now time.Time) *batch {
	b := &batch{host: host}
	of := make(map[snapshot.UID][]notify.Notification)
	var users []snapshot.UID
	for _, n := range notifications {
		if of[n.UID] == nil {
			users = append(users, n.UID)
		}
		of[n.UID] = append(of[n.UID], n)
	}
	for _, uid := range users {
		footer, ok := admit(&c.Memory.Messages, host, uid, now)
		if !ok {
			b.suppressed = append(b.suppressed, of[uid]...)
			continue
		}
		m := agent.Message{UID: uid, Text: textOf(of[uid])}
		if footer != "" {
			m.Text += "\n" + footer
		}
		for _, n := range of[uid] {
			if !n.Information {
				m.IDs = append(m.IDs, n.ID)
			}
		}
		b.messages, b.about = append(b.messages, m), append(b.about, of[uid])
	}
	return b
}

func (b *batch) to() snapshot.Hostname { return b.host }

// messagesWithin is how long messages may take when the run ends meanwhile: whether they arrived
// wouldn't be known otherwise, and the next controller would send them once more.
const messagesWithin = 2 * time.Second

func (b *batch) send(ctx context.Context, link Link, host remote.Host) (err error) {
	if len(b.messages) == 0 {
		return nil
	}
	longer, cancel := remote.Outlasting(ctx, messagesWithin)
	defer cancel()
	b.shown, err = link.Notify(longer, host, b.messages)
	return err
}

// learn reports who could not be notified, and has lost warnings sent again.
func (b *batch) learn(c *Controller, cycle *Cycle, err error) learned {
	deliveries := b.deliveries(err)
	c.Memory.learnOfDeliveries(deliveries)
	deliveries = slices.DeleteFunc(deliveries, func(d Delivery) bool { return d.Information }) // which warns nobody
	cycle.Notified = append(cycle.Notified, deliveries...)
	return learned{records: deliveryRecords(deliveries)}
}

// deliveries are what became of the notifications.
func (b *batch) deliveries(err error) (list []Delivery) {
	for i, about := range b.about {
		var shown agent.Shown
		if i < len(b.shown) {
			shown = b.shown[i]
		}
		for _, n := range about {
			list = append(list, Delivery{Notification: n, Terminals: shown.Terminals, Kept: shown.Kept, Err: err})
		}
	}
	for _, n := range b.suppressed {
		list = append(list, Delivery{Notification: n, Err: errSuppressed})
	}
	return list
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

// deliveryRecords are for the log.
func deliveryRecords(deliveries []Delivery) []audit.Record {
	var records []audit.Record
	for _, d := range deliveries {
		r := audit.Record{
			Kind: audit.KindNotified, Channel: audit.ChannelTerminal, IDs: []string{d.ID}, Host: d.Host, User: d.User, UID: &d.UID, Text: d.Text + "\n" + d.Advice,
		}
		switch {
		case d.Err != nil:
			r.Reason = d.Err.Error()
		case d.Kept:
			r.Channel = audit.ChannelLogin
		case d.Terminals == 0:
			r.Reason = "not logged in, or takes no messages (mesg n)"
		}
		records = append(records, r)
	}
	return records
}

// errSuppressed is why a message about a finding was not sent.
var errSuppressed = errors.New("suppressed: the user was sent the messages of an hour already")

// messagesAnHour is the most that a user is shown, so that the terminals of a user who breaks rules
// all the time stay usable.
const messagesAnHour = 20

// admit counts a message, and reports whether it may be sent and what it is to end
// with: how many were not sent in the hour before, and that no more will be.
func admit(l *Budget[snapshot.UID], host snapshot.Hostname, uid snapshot.UID, now time.Time) (note string, ok bool) {
	before, spent, ok := l.Spend(host, uid, 1, Share{User: messagesAnHour}, now)
	switch {
	case !ok:
		return "", false
	case spent.Sent == messagesAnHour:
		note = "Further messages are suppressed for up to an hour; genv history shows what is done."
	case before.Suppressed > 0:
		note = fmt.Sprintf("%d more messages suppressed.", before.Suppressed)
	}
	return note, true
}
