package mail

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
)

// Rules say when mails are due.
type Rules struct {
	// Gather is how long the first finding of a matter waits for others.
	Gather time.Duration
	// Digest is for how long what isn't new is collected.
	Digest time.Duration
	// PerUser is how many mails a user gets while a digest is collected, and InAll how
	// many all users get in an hour.
	PerUser, InAll int
}

const (
	hour = time.Hour
	// maxItems is how many findings of a user wait at most, and maxUsers of how many
	// users; maxUsersPerHost is how many of these one host may have added.
	maxItems        = 20
	maxKnown        = 4 * maxItems
	maxUsers        = 1000
	maxUsersPerHost = 100
	// mattersPerHost is how many matters of one host are new to a user within an hour:
	// a host may make up findings of every rule.
	mattersPerHost = 2
	// hostShare is the part of all mails that may be about one host alone.
	hostShare = 4
)

// Backlog is what waits to be mailed, and how much was mailed lately. It has no clock
// and sends nothing. The zero Backlog is empty.
type Backlog struct {
	Users map[snapshot.Username]*Person `json:"users,omitempty"`
	// Sent counts the mails of an hour: all, and those about one host alone.
	Sent Sent `json:"sent,omitzero"`
}

// Person is what waits for one user.
type Person struct {
	Items []notify.NoticeItem `json:"items,omitempty"`
	More  int                 `json:"more,omitempty"` // that found no room in Items
	Host  string              `json:"host,omitempty"` // that was the first to add something
	// News is when the first finding of a new matter came; zero for none.
	News time.Time `json:"news,omitzero"`
	// Since is when the last digest began, or the first finding came. Matters are
	// those of which the user knows since then.
	Since   time.Time `json:"since"`
	Matters []Matter  `json:"matters,omitempty"`
	Sent    int       `json:"sent,omitempty"`
	// Known are the last findings, with their stage: a message that may not have reached
	// a terminal is tried again, and mail is not.
	Known []string `json:"known,omitempty"`
}

// Matter is a rule on a host.
type Matter struct{ Host, Rule string }

// Sent counts the mails of an hour.
type Sent struct {
	Since time.Time      `json:"since"`
	All   int            `json:"all"`
	Hosts map[string]int `json:"hosts,omitempty"`
}

// Letter is a mail that is due.
type Letter struct {
	User   snapshot.Username
	Items  []notify.NoticeItem
	More   int
	Digest bool
	Run    string // of the controller, and its cycle, for the record
	Cycle  int
	Test   bool // that mail works, by SendTest

	message []byte // of a copy: what the user was sent
}

// Add adds a finding for a user. It is false if there is no room for the user.
func (m *Backlog) Add(user snapshot.Username, f notify.NoticeItem, r Rules, now time.Time) bool {
	p := m.Users[user]
	if p == nil {
		if len(m.Users) >= maxUsers || m.addedBy(f.Host) >= maxUsersPerHost {
			return false
		}
		if m.Users == nil {
			m.Users = make(map[snapshot.Username]*Person)
		}
		p = &Person{Host: f.Host, Since: now}
		m.Users[user] = p
	}
	p.add(f, r, now)
	return true
}

// addedBy is how many users a host added.
func (m *Backlog) addedBy(host string) int {
	n := 0
	for _, p := range m.Users {
		if p != nil && p.Host == host {
			n++
		}
	}
	return n
}

func (p *Person) add(f notify.NoticeItem, r Rules, now time.Time) {
	stage := fmt.Sprintf("%s %t", f.ID, f.Pending)
	if slices.Contains(p.Known, stage) {
		return
	}
	p.Known = append(p.Known[max(0, len(p.Known)-maxKnown+1):], stage)
	if len(p.Items) < maxItems {
		p.Items = append(p.Items, f)
	} else {
		p.More++
	}
	matter := Matter{f.Host, f.Rule}
	if over(p.Since, r.Digest, now) && len(p.Items) == 1 {
		p.begin(now) // an hour without mail: everything is new again
	}
	if f.Rule == "" { // an operator wrote it
		p.News = cmp.Or(p.News, now)
		return
	}
	if slices.Contains(p.Matters, matter) || p.countOf(f.Host) >= mattersPerHost || p.Sent >= r.PerUser {
		return
	}
	p.Matters = append(p.Matters, matter)
	if p.News.IsZero() {
		p.News = now
	}
}

// begin begins another hour.
func (p *Person) begin(now time.Time) { p.Since, p.Matters, p.Sent, p.News = now, nil, 0, time.Time{} }

func (p *Person) countOf(host string) int {
	n := 0
	for _, m := range p.Matters {
		if m.Host == host {
			n++
		}
	}
	return n
}

// over says whether a time has passed, or the clock was set back.
func over(since time.Time, length time.Duration, now time.Time) bool {
	age := now.Sub(since)
	return age >= length || age < 0
}

// Due returns the mails that are due, by user, and forgets what is over. They count as
// sent.
func (m *Backlog) Due(r Rules, now time.Time) []Letter {
	if over(m.Sent.Since, hour, now) {
		m.Sent = Sent{Since: now}
	}
	var due []Letter
	for _, user := range slices.Sorted(maps.Keys(m.Users)) {
		p := m.Users[user]
		if p == nil { // only a damaged file has this
			delete(m.Users, user)
			continue
		}
		digest := over(p.Since, r.Digest, now)
		news := !p.News.IsZero() && over(p.News, r.Gather, now)
		switch {
		case len(p.Items) == 0 && digest:
			delete(m.Users, user)
		case len(p.Items) > 0 && (digest || news) && m.Sent.admit(p, r):
			due = append(due, p.letter(user, digest, now))
		}
	}
	return due
}

// letter takes what waits for a user. At the end of an hour another one begins.
func (p *Person) letter(user snapshot.Username, hourIsOver bool, now time.Time) Letter {
	l := Letter{User: user, Items: p.Items, More: p.More, Digest: hourIsOver && p.News.IsZero()}
	if hourIsOver {
		p.begin(now)
		for _, f := range l.Items {
			if matter := (Matter{f.Host, f.Rule}); !slices.Contains(p.Matters, matter) {
				p.Matters = append(p.Matters, matter)
			}
		}
	}
	p.Items, p.More, p.News = nil, 0, time.Time{}
	p.Sent++
	return l
}

// admit counts a mail, if the limits allow it. One about several hosts counts for none
// of them.
func (s *Sent) admit(p *Person, r Rules) bool {
	host := p.Items[0].Host
	for i := range p.Items {
		if p.Items[i].Host != host {
			host = ""
		}
	}
	if s.All >= r.InAll || host != "" && s.Hosts[host] >= max(1, r.InAll/hostShare) {
		return false
	}
	s.All++
	if s.Hosts == nil {
		s.Hosts = make(map[string]int)
	}
	if host != "" {
		s.Hosts[host]++
	}
	return true
}

// Flush returns what waits for less than a minute, at the end of a run. Digests stay.
func (m *Backlog) Flush(r Rules, now time.Time) []Letter {
	r.Gather = 0
	return m.Due(r, now)
}

// Return takes back a mail that was not sent, so that it is due at once.
func (m *Backlog) Return(l Letter, now time.Time) {
	if m.Users == nil {
		m.Users = make(map[snapshot.Username]*Person)
	}
	p := m.Users[l.User]
	if p == nil {
		p = &Person{Since: now}
		m.Users[l.User] = p
	}
	items := append(slices.Clone(l.Items), p.Items...)
	p.More += l.More + max(0, len(items)-maxItems)
	p.Items, p.News = items[:min(len(items), maxItems)], now
	p.Sent = max(0, p.Sent-1)
}
