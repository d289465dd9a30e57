package controller

import (
	"context"
	"errors"
	"fmt"
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

// batch is what the users of a host are sent in a cycle.
type batch struct {
	notifications []notify.Notification
	footers       map[snapshot.UID]string // the last line of each user's message
	suppressed    []Delivery              // not sent
}

func (b batch) empty() bool { return len(b.notifications)+len(b.suppressed) == 0 }

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

// send sends the messages, one to each user. A failure is reported to the
// administrator, and does not keep the order from being sent.
func (b batch) send(ctx context.Context, link Link, host remote.Host) []Delivery {
	if len(b.notifications) == 0 {
		return b.suppressed
	}
	messages, of := messagesOf(b.notifications)
	for i := range messages {
		if footer := b.footers[messages[i].UID]; footer != "" {
			messages[i].Text += "\n" + footer
		}
	}
	shown, err := link.Notify(ctx, host, messages)
	list := b.unsent(err)
	for i := range b.notifications {
		if of[i] < len(shown) {
			list[i].Terminals, list[i].Kept = shown[of[i]].Terminals, shown[of[i]].Kept
		}
	}
	return list
}

// unsent are the notifications of a batch that is not sent; nil as the reason is for one that is.
func (b batch) unsent(why error) []Delivery {
	list := make([]Delivery, len(b.notifications), len(b.notifications)+len(b.suppressed))
	for i, n := range b.notifications {
		list[i] = Delivery{Notification: n, Err: why}
	}
	return append(list, b.suppressed...)
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
		if !n.Information {
			messages[at].IDs = append(messages[at].IDs, n.ID)
		}
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

// admitAll separates what is sent to users from what is suppressed, by host. In a
// cycle each user of a host gets at most one message.
func admitAll(l *Budget[snapshot.UID], all map[snapshot.Hostname][]notify.Notification, now time.Time) map[snapshot.Hostname]batch {
	l.Forget(now)
	admitted := make(map[snapshot.Hostname]batch, len(all))
	for host, notifications := range all {
		b := batch{footers: make(map[snapshot.UID]string)}
		allowed := make(map[snapshot.UID]bool)
		for _, n := range notifications {
			ok, known := allowed[n.UID]
			if !known {
				b.footers[n.UID], ok = admit(l, host, n.UID, now)
				allowed[n.UID] = ok
			}
			if ok {
				b.notifications = append(b.notifications, n)
			} else {
				b.suppressed = append(b.suppressed, Delivery{Notification: n, Err: errSuppressed})
			}
		}
		admitted[host] = b
	}
	return admitted
}

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
