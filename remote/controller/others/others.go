// Package others decides what a controller says about other controllers that enforce the
// same hosts: once when one appears, when it has another policy or more hosts, and when it
// has ended.
//
//	notices := tracker.Learn(self, hosts, now) // with what each host said in this cycle
//
// What hosts say are claims: each notice names the hosts, and a host that keeps on making
// controllers up is cut short. The package is pure; it prevents nothing.
package others

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/agent/controllers"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Host is what a host said in a cycle.
type Host struct {
	Name     snapshot.Hostname
	Answered bool // false: what it said before may still be true
	controllers.Answer
}

// Notice is something to say, once.
type Notice struct {
	Action Action
	Host   snapshot.Hostname // the first one
	Text   string
}

// Action is what a notice is about. The texts appear in JSON.
type Action string

// The actions.
const (
	Appeared Action = "other-controller"
	Changed  Action = "other-controller-changed"
	Ended    Action = "other-controller-ended"
	Unknown  Action = "other-controllers-unknown" // a host can't say who else enforces it
)

const (
	// gone is for how long a controller has to be missing: hosts are reconnected, and
	// services restarted.
	gone = 10 * time.Second
	// maxOthers is how many other controllers are known at a time.
	maxOthers = 1024
	// maxPerHour is how many notices there are about one controller, and how many follow
	// from what one host says.
	maxPerHour = 8
)

// Tracker knows what was said. The zero Tracker knows nothing.
type Tracker struct {
	said   map[snapshot.Hostname]controllers.Answer // by hosts, last
	known  map[id]*other
	spent  map[snapshot.Hostname]int // notices in this hour
	about  map[id]int                // likewise
	hour   time.Time                 // when it began
	silent map[snapshot.Hostname]bool
}

// id names a controller. A restart doesn't change it.
type id struct{ id, hostname string }

// other is another controller of which something was said.
type other struct {
	controllers.Seen
	same    bool // the policy
	hosts   map[snapshot.Hostname]bool
	missing time.Time // since when no host names it; zero if one does
}

// claim is another controller as hosts name it now.
type claim struct {
	controllers.Seen
	same  bool
	hosts []snapshot.Hostname
}

// Learn takes what the hosts of a cycle said, in their order.
func (t *Tracker) Learn(self *controllers.Controller, hosts []Host, now time.Time) []Notice {
	if t.known == nil {
		t.known = make(map[id]*other)
	}
	if since := now.Sub(t.hour); since < 0 || since > time.Hour {
		t.hour, t.spent, t.about = now, make(map[snapshot.Hostname]int), make(map[id]int)
	}
	notices := t.hear(hosts)
	claims, order := t.claims(self, hosts)
	for _, id := range order {
		if n := t.compare(id, claims[id]); n.Text != "" {
			notices = append(notices, n)
		}
	}
	return append(notices, t.ended(claims, now)...)
}

// hear keeps what hosts said, and says which can't say it.
func (t *Tracker) hear(hosts []Host) (notices []Notice) {
	said, silent := make(map[snapshot.Hostname]controllers.Answer), make(map[snapshot.Hostname]bool)
	for i := range hosts {
		h := &hosts[i]
		before, known := t.said[h.Name]
		switch {
		case h.Answered:
			if len(h.Others) > 0 || h.Unknown != "" {
				said[h.Name] = h.Answer
			}
		case known:
			said[h.Name] = before
		}
		if said[h.Name].Unknown == "" {
			continue
		}
		silent[h.Name] = true
		if !t.silent[h.Name] && t.maySay([]snapshot.Hostname{h.Name}) {
			notices = append(notices, Notice{Unknown, h.Name, fmt.Sprintf("%s can't say which other controllers enforce it: %s", named([]snapshot.Hostname{h.Name}), text.Printable(h.Unknown))})
		}
	}
	t.said, t.silent = said, silent
	return notices
}

// claims are the other controllers that hosts name now, in the order of the hosts.
func (t *Tracker) claims(self *controllers.Controller, hosts []Host) (claims map[id]*claim, order []id) {
	claims = make(map[id]*claim)
	for i := range hosts {
		name := hosts[i].Name
		for _, s := range t.said[name].Others {
			if s.Same(self) {
				continue
			}
			key := id{s.ID, s.Hostname}
			c := claims[key]
			if c == nil {
				c = &claim{Seen: s, same: true}
				claims[key] = c
				order = append(order, key)
			}
			c.same = c.same && s.Policy == self.Policy
			if !slices.Contains(c.hosts, name) {
				c.hosts = append(c.hosts, name)
			}
		}
	}
	return claims, order
}

// compare returns what is new about a controller.
func (t *Tracker) compare(id id, c *claim) Notice {
	known := t.known[id]
	if known == nil && len(t.known) >= maxOthers {
		return Notice{}
	}
	isNew := func(host snapshot.Hostname) bool { return !known.hosts[host] }
	action := Appeared
	if known != nil {
		known.Seen, known.missing = c.Seen, time.Time{}
		if known.same == c.same && !slices.ContainsFunc(c.hosts, isNew) {
			return Notice{}
		}
		action = Changed
	}
	if t.about[id] >= maxPerHour || !t.maySay(c.hosts) {
		return Notice{}
	}
	t.about[id]++
	if known == nil {
		known = &other{hosts: make(map[snapshot.Hostname]bool)}
		t.known[id] = known
	}
	known.Seen, known.same = c.Seen, c.same
	for _, host := range c.hosts {
		known.hosts[host] = true
	}
	return Notice{action, c.hosts[0], c.text(action)}
}

// maySay counts a notice that follows from what hosts say: the first one that may cause
// more notices in this hour counts.
func (t *Tracker) maySay(hosts []snapshot.Hostname) bool {
	for _, host := range hosts {
		if t.spent[host] < maxPerHour {
			t.spent[host]++
			return true
		}
	}
	return false
}

// ended says which controllers no host names any more.
func (t *Tracker) ended(claims map[id]*claim, now time.Time) (notices []Notice) {
	for id, known := range t.known {
		switch {
		case claims[id] != nil:
		case known.missing.IsZero():
			known.missing = now
		case now.Sub(known.missing) >= gone || now.Before(known.missing):
			delete(t.known, id)
			hosts := make([]snapshot.Hostname, 0, len(known.hosts))
			for host := range known.hosts {
				hosts = append(hosts, host)
			}
			slices.Sort(hosts)
			notices = append(notices, Notice{Ended, hosts[0], fmt.Sprintf("The other controller no longer enforces %s: %s", named(hosts), known)})
		}
	}
	slices.SortFunc(notices, func(a, b Notice) int { return cmp.Compare(a.Text, b.Text) })
	return notices
}

// text describes another controller, and says what to do.
func (c *claim) text(action Action) string {
	verb := "enforces"
	if action == Changed {
		verb = "now enforces"
	}
	who := c.String()
	if c.Login != "" && c.Login != c.Account {
		who += ", logged in as " + text.Shown(c.Login)
	}
	switch {
	case c.Policy == "":
		return fmt.Sprintf("Another controller %s %s, with a policy that is not known (genv 1.4.3?): %s. "+
			"Both continue to act. Stop one of them, unless it is intended.", verb, named(c.hosts), who)
	case c.same:
		return fmt.Sprintf("Another controller %s %s with the same policy, as reported there: %s. "+
			"Both continue to act, and users may be notified twice. One is enough: stop the other, unless it is intended.", verb, named(c.hosts), who)
	}
	return fmt.Sprintf("Another controller %s %s with another policy, as reported there: %s. "+
		"Both continue to act, each by its own policy. Stop one of them, give them the same policy, or give each hosts of its own.", verb, named(c.hosts), who)
}

// maxNamed is how many hosts are named.
const maxNamed = 4

// named names hosts; this machine has no name.
func named(hosts []snapshot.Hostname) string {
	var names []string
	for _, host := range hosts[:min(len(hosts), maxNamed)] {
		name := text.Shown(string(host))
		if host == "" {
			name = "this machine"
		}
		names = append(names, name)
	}
	list := strings.Join(names, ", ")
	if more := len(hosts) - maxNamed; more > 0 {
		list += fmt.Sprintf(" and %d more hosts", more)
	}
	return list
}
