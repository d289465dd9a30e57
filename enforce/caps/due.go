package caps

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
)

// The times of a cap, by the keys of enforce.Memory.Present:
//
//	caps/NAME[/HOST][/WAIT]         since when it is exceeded, whoever would lose; if people share it, or somebody waits
//	caps/NAME[/HOST][/WAIT]/USER    since when the person is over it or, if people share it, is to lose something
//	caps/NAME[/HOST][/WAIT]/USER/2  since when the person is to lose a second thing, and so on
//
// A cap with its own key has that instead of caps/NAME, such as max-devices-per-user.

// key is the key of the cap's own time, and the prefix of its findings' IDs.
func (c *capOn) key() string {
	if c.ID == "" {
		return string(c.rule)
	}
	key := string(c.rule) + "/" + c.ID
	if c.host != nil {
		key += "/" + string(c.host.Name)
	}
	if c.wait != nil {
		key += "/" + c.wait.key
	}
	return key
}

// A schedule makes many people's findings due at once: Spread distributes them over the last quarter.
func (c *capOn) warnOf(u *person) enforce.Warn {
	warn := u.settings.WarnOf(c.rule)
	if c.Warn != nil {
		warn = *c.Warn
	}
	if c.Scheduled {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(c.ID + "/" + string(u.user)))
		warn.Spread = int(hash.Sum32() % 1024)
	}
	return warn
}

func (c *capOn) dueAt() time.Time {
	key := c.key()
	if !c.Together {
		key += "/" + string(c.people[0].user)
	}
	return judging.Later(c.DueAt(c.host, c.warnOf(c.people[0]), key), c.notBefore)
}

// checkCap is CheckDue for a cap. People who share it share its time; each has a quarter of the warning after being
// named.
func (c *capOn) checkCap(u *person, f *enforce.Finding) (due bool) {
	warn := c.warnOf(u)
	if !c.Together && c.wait == nil {
		return c.CheckDue(c.host, f, judging.NewWarning(warn, f.ID))
	}
	shared := *f
	sharedDue := c.CheckDue(c.host, &shared, judging.NewWarning(warn, c.key()))
	ownDue := c.CheckDue(c.host, f, judging.NewWarning(warn.Quarter(), f.ID))
	due = sharedDue && ownDue
	f.Since, f.Cycles, f.Due, f.Pending = shared.Since, shared.Cycles, judging.Later(shared.Due, f.Due), !due
	f.Deferred = !due && (sharedDue || shared.Deferred) && (ownDue || f.Deferred)
	if !c.notBefore.IsZero() { // these looks are from before that time
		f.Deferred = (due || f.Deferred) && !c.notBefore.After(c.Now)
		due, f.Pending, f.Due = false, true, judging.Later(f.Due, c.notBefore)
	}
	return due
}

const maxLevels = 64 // things of a person with their own times

// levelKey is the key of the time since when somebody has to lose more than n things: people are only warned again of
// what is added.
func levelKey(id string, n int) string {
	if n == 0 {
		return id
	}
	return id + "/" + strconv.Itoa(n+1)
}

// levels are the times of the things that a person has to lose, oldest first; at least one.
func (c *capOn) levels(id string, things int) []enforce.Presence {
	list := make([]enforce.Presence, min(max(things, 1), maxLevels))
	for i := range list {
		list[i] = c.Presence(c.host, levelKey(id, i))
	}
	slices.SortFunc(list, func(a, b enforce.Presence) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(b.Cycles, a.Cycles))
	})
	c.remember(id, list)
	return list
}

func (c *capOn) remember(id string, levels []enforce.Presence) {
	for i, p := range levels {
		c.Next.Present[levelKey(id, i)] = p
	}
}

// keepNamed keeps the time of a person who is no longer to lose something by a shared cap while the cap is exceeded:
// the choice may fall on them again. It ends if something of theirs just went. The times of further things survive only
// a short break: otherwise these would go later without a new warning.
func (c *capOn) keepNamed(id string) {
	before, p := c.Before.Present[id], c.Presence(c.host, id)
	if !p.Since.Before(c.At(c.host)) { // it begins now
		return
	}
	if due, _ := before.Due(before.Warn, c.Before.Time); due && c.Before.Findings[id].Decision == enforce.DecisionAct {
		p = enforce.Presence{Since: p.Since, Gone: p.Since}
	}
	c.Next.Present[id] = p
}

// sameMoment is how far apart looks may be to count as one: no job moves so fast.
const sameMoment = enforce.FreshFor / 10

type looks struct {
	hosts          []*judging.HostView
	newest, oldest time.Time // the newest fresh one; zero for none
	acted          bool      // an order ended after a look, which is out of date
	underWay       bool      // an order still runs: the next tick looks again
}

func (c *Counting) looksAt(hosts []snapshot.Hostname) *looks {
	if len(hosts) == 0 {
		hosts = []snapshot.Hostname{""} // this machine has no name
	}
	l := &looks{oldest: c.Now, hosts: make([]*judging.HostView, 0, len(hosts))}
	for _, name := range hosts {
		h := c.ByName[name]
		if h == nil {
			continue
		}
		if l.hosts = append(l.hosts, h); h.Fresh {
			l.newest = judging.Later(l.newest, h.At)
		}
		if h.At.Before(l.oldest) {
			l.oldest = h.At
		}
		l.acted, l.underWay = l.acted || h.Acted, l.underWay || h.UnderWay.Orders > 0
	}
	return l
}

// confirmed reports whether the looks are fresh and of the same moment: a job that moved between hosts in between would
// count twice. Otherwise the finding is deferred, and these hosts are asked once more, all at once. Their answers count
// together from then on (AskedAgain).
func (c *capOn) confirmed(f *enforce.Finding) bool {
	if c.looks == nil {
		c.looks = c.looksAt(f.CountedOn)
	}
	j, l := c.Judgement, c.looks
	f.Pending, f.Deferred = true, true // by default
	if len(j.Unanswered) > 0 || l.acted {
		return false
	}
	p, since := j.Next.Present[f.ID], j.Now // the earliest time of a look that counts
	if !l.newest.IsZero() {
		since = l.newest.Add(-sameMoment)
	}
	if again := p.AskedAgain; !again.IsZero() && again.Before(since) {
		since = again.Add(1) // looks of that time may be earlier ones
	}
	old := l.oldest.Before(since)
	switch {
	case !old:
		p.AskedAgain, f.Pending, f.Deferred = time.Time{}, false, false
	case p.AskedAgain.IsZero() && !l.underWay:
		p.AskedAgain = j.Now
		for _, h := range l.hosts { // at the same moment
			j.Ask[h.Name] = true
		}
	}
	j.Next.Present[f.ID] = p
	return !old
}
