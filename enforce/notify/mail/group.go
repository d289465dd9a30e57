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

// ErrNoRoom is why a user gets no mail.
var ErrNoRoom = errors.New("not sent: too many mails of this hour wait already")

const (
	maxItems        = 20 // messages that wait for a user
	maxKnown        = 4 * maxItems
	maxUsersPerHost = 100 // for whom messages wait because of one host
	hostShare       = 4   // a quarter of all mails may be about one host alone
)

// group is what waits for one user, and the mails of this interval.
type group struct {
	letter Letter
	host   snapshot.Hostname // that added the user
	began  time.Time         // the interval
	sent   int
	known  []string // the last items: a message may be repeated for terminals, and is mailed once
}

// Add adds a message without waiting. The error is why the user gets no mail.
func (s *Sender) Add(n *notify.UserMessage, run string, cycle int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.settings.Address(n.User); err != nil {
		return err
	}
	g := s.groups[n.User]
	if g == nil {
		added := 0
		for _, other := range s.groups {
			if other.host == n.Host {
				added++
			}
		}
		if added >= maxUsersPerHost {
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

// due returns, once, the letters that are due; all when closing. It forgets groups that are over.
func (s *Sender) due(now time.Time, closing bool) (letters []Letter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.hour) >= time.Hour {
		s.hour, s.all, s.hosts = now, 0, make(map[string]int)
	}
	for _, user := range slices.Sorted(maps.Keys(s.groups)) {
		g := s.groups[user]
		ended := now.Sub(g.began) >= s.settings.Digest
		switch l := g.letter; {
		case len(l.Items) == 0 && ended:
			delete(s.groups, user)
		case len(l.Items) == 0 || !closing && !ended && (g.sent >= s.settings.PerUser ||
			now.Sub(l.Items[0].At) < policy.MailGather) || !s.admit(l.hosts()):
		default:
			if ended { // another interval begins
				l.Digest, g.began, g.sent = g.sent >= s.settings.PerUser, now, 0
			}
			g.letter, g.sent = Letter{}, g.sent+1
			letters = append(letters, l)
		}
	}
	return letters
}

// admit counts a mail if the limits allow it. A mail about several hosts counts for none of them.
func (s *Sender) admit(hosts []string) bool {
	host, limit := "", s.settings.InAll
	if len(hosts) == 1 {
		host = hosts[0]
	}
	if s.all >= limit || host != "" && s.hosts[host] >= max(1, limit/hostShare) {
		return false
	}
	s.all++
	s.hosts[host]++
	return true
}
