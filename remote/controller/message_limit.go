package controller

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
)

// The most that a user is shown, so that the terminals of a user who breaks rules
// all the time stay usable.
const (
	messagesAnHour = 20
	messageWindow  = time.Hour
	// maxRecipients bounds what is remembered for one host, since a host may make
	// up users.
	maxRecipients = 1024
)

// errSuppressed is why a message about a finding was not sent.
var errSuppressed = errors.New("suppressed: the user was sent the messages of an hour already")

// window is what a user was sent within an hour.
type window struct {
	Since      time.Time `json:"since"`
	Sent       int       `json:"sent"`
	Suppressed int       `json:"suppressed,omitempty"`
}

// MessageLimit counts messages by user and hour. It has no clock. The zero
// MessageLimit has counted none.
type MessageLimit struct {
	// Users are counted by host, so that messages which one host causes don't use up
	// those of the user on another host.
	Users map[snapshot.Hostname]map[snapshot.UID]window `json:"users,omitempty"`
}

// recipient is a user on a host.
type recipient struct {
	host snapshot.Hostname
	uid  snapshot.UID
}

// admit counts a message, and reports whether it may be sent and what it is to end
// with: how many were not sent in the hour before, and that no more will be.
func (l *MessageLimit) admit(to recipient, now time.Time) (note string, ok bool) {
	users := l.Users[to.host]
	w, known := users[to.uid]
	if !known && len(users) >= maxRecipients {
		return "", false
	}
	if l.Users == nil {
		l.Users = make(map[snapshot.Hostname]map[snapshot.UID]window)
	}
	if users == nil {
		users = make(map[snapshot.UID]window)
		l.Users[to.host] = users
	}
	defer func() { users[to.uid] = w }()
	if age := now.Sub(w.Since); age >= messageWindow || age < 0 {
		if w.Suppressed > 0 {
			note = fmt.Sprintf("%d more messages suppressed.", w.Suppressed)
		}
		w = window{Since: now}
	}
	if w.Sent >= messagesAnHour {
		w.Suppressed++
		return "", false
	}
	if w.Sent++; w.Sent == messagesAnHour {
		note = "Further messages are suppressed for up to an hour; genv history shows what is done."
	}
	return note, true
}

// refund uncounts a message that was shown on no terminal.
func (l *MessageLimit) refund(to recipient) {
	if w := l.Users[to.host][to.uid]; w.Sent > 0 {
		w.Sent--
		l.Users[to.host][to.uid] = w
	}
}

// forget drops windows that have ended. One with suppressed messages is kept for
// another hour, so that the next message can say how many there were.
func (l *MessageLimit) forget(now time.Time) {
	for host, users := range l.Users {
		maps.DeleteFunc(users, func(_ snapshot.UID, w window) bool {
			age := now.Sub(w.Since)
			return age >= 2*messageWindow || age >= messageWindow && w.Suppressed == 0
		})
		if len(users) == 0 {
			delete(l.Users, host)
		}
	}
}

// admitAll separates what is sent to users from what is suppressed, by host. In a
// cycle each user of a host gets at most one message.
func (l *MessageLimit) admitAll(all map[snapshot.Hostname][]notify.Notification, now time.Time) map[snapshot.Hostname]batch {
	l.forget(now)
	admitted := make(map[snapshot.Hostname]batch, len(all))
	for host, notifications := range all {
		b := batch{footers: make(map[snapshot.UID]string)}
		allowed := make(map[snapshot.UID]bool)
		for _, n := range notifications {
			ok, known := allowed[n.UID]
			if !known {
				b.footers[n.UID], ok = l.admit(recipient{host, n.UID}, now)
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
