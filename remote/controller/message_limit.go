package controller

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// recipient is a user on a host. They are counted by host, so that messages which
// one host causes don't use up those of the user on another host.
type recipient struct {
	host string
	uid  snapshot.UID
}

// MarshalText implements encoding.TextMarshaler, for keys of JSON objects.
func (r recipient) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%s/%d", r.host, r.uid), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *recipient) UnmarshalText(text []byte) error {
	host, uid, _ := strings.Cut(string(text), "/")
	n, err := strconv.ParseUint(uid, 10, 32)
	*r = recipient{host, snapshot.UID(n)}
	return err
}

// window is what a user was sent within an hour.
type window struct {
	Since      time.Time `json:"since"`
	Sent       int       `json:"sent"`
	Suppressed int       `json:"suppressed,omitempty"`
}

// MessageLimit counts messages by user and hour. It has no clock. The zero
// MessageLimit has counted none.
type MessageLimit struct {
	Windows map[recipient]window `json:"windows,omitempty"`
	hosts   map[string]int       // how many windows each has
}

// admit counts a message, and reports whether it may be sent and what it is to end
// with: how many were not sent in the hour before, and that no more will be.
func (l *MessageLimit) admit(to recipient, now time.Time) (note string, ok bool) {
	l.countHosts()
	w, known := l.Windows[to]
	if !known {
		if l.hosts[to.host] >= maxRecipients {
			return "", false
		}
		w = window{Since: now}
		l.hosts[to.host]++
	}
	defer func() { l.Windows[to] = w }()
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

// countHosts counts the windows of each host, unless that is done.
func (l *MessageLimit) countHosts() {
	if l.hosts != nil {
		return
	}
	l.hosts = make(map[string]int)
	if l.Windows == nil {
		l.Windows = make(map[recipient]window)
	}
	for to := range l.Windows {
		l.hosts[to.host]++
	}
}

// refund uncounts a message that was shown on no terminal.
func (l *MessageLimit) refund(to recipient) {
	if w := l.Windows[to]; w.Sent > 0 {
		w.Sent--
		l.Windows[to] = w
	}
}

// forget drops windows that have ended. One with suppressed messages is kept for
// another hour, so that the next message can say how many there were.
func (l *MessageLimit) forget(now time.Time) {
	l.countHosts()
	for to, w := range l.Windows {
		age := now.Sub(w.Since)
		if age >= 2*messageWindow || age >= messageWindow && w.Suppressed == 0 {
			delete(l.Windows, to)
			if l.hosts[to.host]--; l.hosts[to.host] == 0 {
				delete(l.hosts, to.host)
			}
		}
	}
}

// admitAll separates what is sent to users from what is suppressed, by host. In a
// cycle each user of a host gets at most one message.
func (l *MessageLimit) admitAll(all map[string][]notify.Notification, now time.Time) map[string]batch {
	l.forget(now)
	admitted := make(map[string]batch, len(all))
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
