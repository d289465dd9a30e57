package mail

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

// Why a user gets no mail.
var (
	ErrOptedOut = errors.New("not sent: the policy lists the user under `opt-out`")
	ErrNoRoom   = errors.New("not sent: too many mails of this hour wait already")
	errNoName   = errors.New("not sent: the host doesn't report the name of this user")
)

const (
	maxItems        = 20 // messages that wait for a user
	maxKnown        = 4 * maxItems
	maxUsers        = 1000 // for whom messages wait
	maxUsersPerHost = 100  // of these that one host added
	hostShare       = 4    // a quarter of all mails may be about one host alone
)

// group is what waits for one user, and what the user was sent in this interval.
type group struct {
	letter Letter
	host   snapshot.Hostname // that added the user
	began  time.Time         // the interval
	sent   int
	known  []string // the last items: a message may be repeated for terminals, and is mailed once
}

// Refuse is why a user gets no mail; nil for one who does.
func Refuse(settings *policy.Mail, user snapshot.Username) error {
	switch {
	case user == "":
		return errNoName
	case settings.OptedOut(user):
		return ErrOptedOut
	}
	return nil
}

// Add adds what a user is told. It doesn't wait. The error is why the user gets no mail.
func (s *Sender) Add(n *notify.UserMessage, run string, cycle int) error {
	if err := Refuse(s.Settings, n.User); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[n.User]
	if g == nil {
		added := 0
		for _, other := range s.groups {
			if other.host == n.Host {
				added++
			}
		}
		if len(s.groups) >= maxUsers || added >= maxUsersPerHost {
			return ErrNoRoom
		}
		g = &group{host: n.Host, began: s.Now()}
		s.groups[n.User] = g
	}
	g.letter.User, g.letter.Run, g.letter.Cycle = n.User, run, cycle
	stage := fmt.Sprint(n.ID, n.Pending)
	if slices.Contains(g.known, stage) {
		return nil
	}
	g.known = append(g.known[max(0, len(g.known)-maxKnown+1):], stage)
	if len(g.letter.Items) < maxItems {
		g.letter.Items = append(g.letter.Items, *n)
	} else {
		g.letter.More++
	}
	return nil
}

// over reports whether a time has passed, or the clock was set back.
func over(since time.Time, length time.Duration, now time.Time) bool {
	age := now.Sub(since)
	return age >= length || age < 0
}

// due returns, once, the letters that are due, at the end of a run all. It forgets what is over.
func (s *Sender) due(now time.Time, closing bool) (letters []Letter) {
	if over(s.hour, time.Hour, now) {
		s.hour, s.all, s.hosts = now, 0, make(map[snapshot.Hostname]int)
	}
	for _, user := range slices.Sorted(maps.Keys(s.groups)) {
		g := s.groups[user]
		ended := over(g.began, s.Settings.Digest, now)
		switch {
		case len(g.letter.Items) == 0 && ended:
			delete(s.groups, user)
		case len(g.letter.Items) == 0 || !closing && !ended && (g.sent >= s.Settings.PerUser ||
			!over(g.letter.Items[0].At, s.Gather, now)):
		case s.admit(g.letter.Items):
			l := g.letter
			if ended { // another interval begins
				l.Digest, g.began, g.sent = g.sent >= s.Settings.PerUser, now, 0
			}
			g.letter, g.sent = Letter{}, g.sent+1
			letters = append(letters, l)
		}
	}
	return letters
}

// admit counts a mail if the limits allow it. One about several hosts counts for none of them.
func (s *Sender) admit(items []notify.UserMessage) bool {
	host, limit := items[0].Host, s.Settings.InAll
	if slices.ContainsFunc(items, func(i notify.UserMessage) bool { return i.Host != host }) {
		host = ""
	}
	if s.all >= limit || host != "" && s.hosts[host] >= max(1, limit/hostShare) {
		return false
	}
	s.all++
	s.hosts[host]++
	return true
}
