package controller

import (
	"fmt"
	"maps"
	"time"

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

// window is what a user was sent within an hour.
type window struct {
	Since      time.Time `json:"since"`
	Sent       int       `json:"sent"`
	Suppressed int       `json:"suppressed,omitempty"`
}

// MessageCounts counts messages by user and hour. It has no clock. The zero
// MessageCounts has counted none.
type MessageCounts struct {
	// Users are counted by host, so that messages which one host causes don't use up
	// those of the user on another host.
	Users map[snapshot.Hostname]map[snapshot.UID]window `json:"users,omitempty"`
}

// Recipient is a user on a host.
type Recipient struct {
	Host snapshot.Hostname
	UID  snapshot.UID
}

// Admit counts a message, and reports whether it may be sent and what it is to end
// with: how many were not sent in the hour before, and that no more will be.
func (l *MessageCounts) Admit(to Recipient, now time.Time) (note string, ok bool) {
	users := l.Users[to.Host]
	w, known := users[to.UID]
	if !known && len(users) >= maxRecipients {
		return "", false
	}
	if l.Users == nil {
		l.Users = make(map[snapshot.Hostname]map[snapshot.UID]window)
	}
	if users == nil {
		users = make(map[snapshot.UID]window)
		l.Users[to.Host] = users
	}
	defer func() { users[to.UID] = w }()
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

// Refund uncounts a message that was shown on no terminal.
func (l *MessageCounts) Refund(to Recipient) {
	if w := l.Users[to.Host][to.UID]; w.Sent > 0 {
		w.Sent--
		l.Users[to.Host][to.UID] = w
	}
}

// Forget drops windows that have ended. One with suppressed messages is kept for
// another hour, so that the next message can say how many there were.
func (l *MessageCounts) Forget(now time.Time) {
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
