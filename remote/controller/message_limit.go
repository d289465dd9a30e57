package controller

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce"
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

// recipient is a user on a host. They are counted by host, so that messages which
// one host causes don't use up those of the user on another host.
type recipient struct {
	host string
	uid  snapshot.UID
}

// window is what a user was sent within an hour.
type window struct {
	since      time.Time
	sent       int
	suppressed int
}

// messageLimit counts messages by user and hour. It has no clock. The zero
// messageLimit has counted none.
type messageLimit struct {
	windows map[recipient]*window
	hosts   map[string]int // how many windows each has
}

// admit counts a message, and says whether it may be sent and what it is to end
// with: how many were not sent in the hour before, and that no more will be.
func (l *messageLimit) admit(to recipient, now time.Time) (note string, ok bool) {
	if l.windows == nil {
		l.windows, l.hosts = make(map[recipient]*window), make(map[string]int)
	}
	w := l.windows[to]
	if w == nil {
		if l.hosts[to.host] >= maxRecipients {
			return "", false
		}
		w = &window{since: now}
		l.windows[to] = w
		l.hosts[to.host]++
	}
	if age := now.Sub(w.since); age >= messageWindow || age < 0 {
		if w.suppressed > 0 {
			note = fmt.Sprintf("%d more messages suppressed.", w.suppressed)
		}
		*w = window{since: now}
	}
	if w.sent >= messagesAnHour {
		w.suppressed++
		return "", false
	}
	if w.sent++; w.sent == messagesAnHour {
		note = "Further messages are suppressed for up to an hour; genv history shows what is done."
	}
	return note, true
}

// refund uncounts a message that was shown on no terminal.
func (l *messageLimit) refund(to recipient) {
	if w := l.windows[to]; w != nil && w.sent > 0 {
		w.sent--
	}
}

// forget drops windows that have ended. One with suppressed messages is kept for
// another hour, so that the next message can say how many there were.
func (l *messageLimit) forget(now time.Time) {
	for to, w := range l.windows {
		age := now.Sub(w.since)
		if age >= 2*messageWindow || age >= messageWindow && w.suppressed == 0 {
			delete(l.windows, to)
			if l.hosts[to.host]--; l.hosts[to.host] == 0 {
				delete(l.hosts, to.host)
			}
		}
	}
}

// mail is what the users of a host are sent in a cycle.
type mail struct {
	tellings   []enforce.Telling
	notes      map[snapshot.UID]string // the last line of each user's message
	suppressed []Told                  // not sent
}

func (m mail) any() bool { return len(m.tellings)+len(m.suppressed) > 0 }

// admit separates what is sent to users from what is suppressed. In a cycle each
// user of a host gets at most one message.
func (c *Controller) admit(all map[string][]enforce.Telling) map[string]mail {
	now := c.Now()
	c.limit.forget(now)
	admitted := make(map[string]mail, len(all))
	for host, tellings := range all {
		m := mail{notes: make(map[snapshot.UID]string)}
		allowed := make(map[snapshot.UID]bool)
		for _, t := range tellings {
			ok, known := allowed[t.UID]
			if !known {
				m.notes[t.UID], ok = c.limit.admit(recipient{host, t.UID}, now)
				allowed[t.UID] = ok
			}
			if ok {
				m.tellings = append(m.tellings, t)
			} else {
				m.suppressed = append(m.suppressed, Told{Telling: t, Err: errSuppressed})
			}
		}
		admitted[host] = m
	}
	return admitted
}

// refundUnseen uncounts the messages that were shown on no terminal.
func (c *Controller) refundUnseen(told []Told) {
	done := make(map[recipient]bool)
	for _, t := range told {
		to := recipient{string(t.Host), t.UID}
		if t.Terminals == 0 && !errors.Is(t.Err, errSuppressed) && !done[to] {
			done[to] = true
			c.limit.refund(to)
		}
	}
}
