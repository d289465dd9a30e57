package companions

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// Allowances tells hosts what the policy allows their users: the caps, with what counts here and elsewhere, and the
// rules. It sends nothing itself: hosts get allowances with the next request for a snapshot.
type Allowances struct {
	By, Contact, Page string // who enforces the policy, whom users ask about it, and where they see all hosts

	OneHost  bool          // By enforces the policy on one host only
	Interval time.Duration // between two rounds
	Tell     func(map[snapshot.Hostname]*service.Allowance)

	hosts map[snapshot.Hostname]*toldHost
	rules map[*enforce.Settings][]service.Rule // of the last Plan
}

// toldHost has the last allowance of a host.
type toldHost struct {
	*service.Allowance
	at     time.Time          // when it was made
	by     *snapshot.Snapshot // from which it was made
	number uint64             // of the last question for which other hosts were asked
	since  time.Time          // when they were asked
}

const (
	othersWithin = time.Second // for other hosts to answer; then the question is answered without them
	maxPeople    = 1024        // in an allowance
)

// Plan implements controller.Companion. A host gets another allowance only after a new snapshot.
func (a *Allowances) Plan(round *controller.Round, _ []enforce.Event) (
	none []*controller.Delivery, effects controller.Effects,
) {
	if round.DryRun {
		return none, effects
	}
	a.rules = make(map[*enforce.Settings][]service.Rule)
	next := make(map[snapshot.Hostname]*toldHost, len(round.Cluster.Hosts))
	byHost := make(map[snapshot.Hostname]*service.Allowance, len(round.Cluster.Hosts))
	for i := range round.Cluster.Hosts {
		h := &round.Cluster.Hosts[i]
		last := a.hosts[h.Name]
		if h.Snapshot != nil && (last == nil || h.IsNew && !a.goesOn(round, h, last)) {
			var ask []snapshot.Hostname
			last, ask = a.renewed(round, h, last)
			effects.Ask = append(effects.Ask, ask...)
		}
		if last != nil {
			next[h.Name], byHost[h.Name] = last, last.Allowance
		}
	}
	a.hosts = next
	a.Tell(byHost)
	return none, effects
}

// Learn implements controller.Companion.
func (*Allowances) Learn(*controller.Round, *controller.Delivery) controller.Effects {
	return controller.Effects{}
}

// renewed returns the next allowance of a host, and the hosts to ask at once. After a question of a user there, that is
// the host itself, which gets the answer with the request; before it, other hosts on which the user has something,
// unless they were asked just now.
func (a *Allowances) renewed(round *controller.Round, h *snapshot.Host, last *toldHost) (
	next *toldHost, ask []snapshot.Hostname,
) {
	if last == nil {
		last = &toldHost{Allowance: new(service.Allowance)}
	}
	next = &toldHost{Allowance: a.of(round, h), at: round.Now, by: h.Snapshot, number: last.number, since: last.since}
	if asked := h.Snapshot.Asked; asked != nil {
		next.Asked = last.Asked
		if next.Asked != asked.Number {
			ask = append(next.answer(round, asked), h.Name)
		}
	}
	if round.Now.Sub(last.at) < a.validFor()/3 && same(last.Allowance, next.Allowance) {
		last.by, last.number, last.since = next.by, next.number, next.since
		return last, ask
	}
	if last.by != nil && !maps.EqualFunc(counted(last.Allowance), counted(next.Allowance), slices.Equal) {
		ask = append(ask, h.Name) // or `genv status` would be out of date for an interval
	}
	return next, ask
}

func counted(a *service.Allowance) map[[2]int][]snapshot.DeviceIndex {
	all := make(map[[2]int][]snapshot.DeviceIndex)
	for uid, p := range a.People {
		for _, u := range p.Caps {
			if len(u.GPUs) > 0 {
				all[[2]int{int(uid), u.Cap}] = u.GPUs
			}
		}
	}
	return all
}

// goesOn reports whether an allowance remains: nothing changed on its host. News of other hosts wait for a third of its
// time, or for a question.
func (a *Allowances) goesOn(round *controller.Round, h *snapshot.Host, last *toldHost) bool {
	s := h.Snapshot
	return s == last.by && round.Now.Sub(last.at) < a.validFor()/3 &&
		(s.Asked == nil || s.Asked.Number == last.Asked) && len(s.Waits)+len(last.Offers)+len(last.Possible) == 0
}

func (t *toldHost) answer(round *controller.Round, asked *snapshot.Asked) (ask []snapshot.Hostname) {
	old := notFresh(round, t.Allowance, asked)
	switch {
	case len(old) > 0 && t.number != asked.Number:
		t.number, t.since = asked.Number, round.Now
		return old
	case len(old) == 0 || round.Now.Sub(t.since) > othersWithin:
		t.Asked = asked.Number
	}
	return nil
}

// same reports whether two allowances are equal except for SeenMS.
func same(a, b *service.Allowance) bool {
	timeless := func(a *service.Allowance) service.Allowance {
		copied := *a
		copied.People = make(map[snapshot.UID]service.Person, len(a.People))
		for uid, p := range a.People {
			p.Caps = slices.Clone(p.Caps)
			for i := range p.Caps {
				p.Caps[i].SeenMS = 0
			}
			copied.People[uid] = p
		}
		return copied
	}
	return reflect.DeepEqual(timeless(a), timeless(b))
}

func notFresh(round *controller.Round, a *service.Allowance, asked *snapshot.Asked) (old []snapshot.Hostname) {
	for _, who := range asked.People {
		for _, u := range a.People[who.UID].Caps {
			old = append(old, u.Hosts...)
		}
	}
	slices.Sort(old)
	return slices.DeleteFunc(slices.Compact(old), func(name snapshot.Hostname) bool {
		at := slices.IndexFunc(round.Cluster.Hosts, func(h snapshot.Host) bool { return h.Name == name })
		return at < 0 || round.Now.Sub(round.Cluster.Hosts[at].AskedAt) <= enforce.FreshFor
	})
}

// validFor is how long an allowance holds without a renewal.
func (a *Allowances) validFor() time.Duration { return max(time.Minute, 3*a.Interval) }

func (a *Allowances) of(round *controller.Round, h *snapshot.Host) *service.Allowance {
	query := enforce.Query{Host: h.Name, Labels: h.Labels, At: round.Now}
	told := &service.Allowance{
		By: a.By, Contact: a.Contact, Page: a.Page, OneHost: a.OneHost, ForMS: a.validFor().Milliseconds(),
		Rules: a.rulesOf(round.Policy, query), People: make(map[snapshot.UID]service.Person),
	}
	places := make(map[string]int)
	people := peopleOf(h.Snapshot)
	for _, uid := range slices.Sorted(maps.Keys(people)) {
		name := people[uid]
		p, own := service.Person{}, make(map[string]int)
		query.User = name
		if rules := a.rulesOf(round.Policy, query); !reflect.DeepEqual(rules, told.Rules) {
			p.Rules = rules
		}
		for _, count := range round.Plan.Counts.On(h.Name, name) {
			if !count.PerHost && !count.Together {
				own[placeOf(&count)] = len(p.Caps)
			}
			p.Caps = append(p.Caps, use(told, places, &count, round.Now))
		}
		p.Reservable = reservableOf(round, h, name, p.Caps, own)
		told.People[uid] = p
	}
	tellWaits(told, round.Plan.Offers, h.Name)
	return told
}

func tellWaits(told *service.Allowance, all []enforce.Offer, host snapshot.Hostname) {
	told.Offers, told.Possible = make(map[string][]snapshot.DeviceIndex), make(map[string]int)
	for _, w := range all {
		switch {
		case w.Host != host:
		case len(w.GPUs) > 0:
			told.Offers[w.ID] = w.GPUs
		default:
			told.Possible[w.ID] = max(told.Possible[w.ID], w.Possible) // by several caps
		}
	}
}

// reservableOf returns what a user may reserve on a host, nil for nothing, with the user's reservations elsewhere. It
// also adds these to the user's caps; places has the index of each cap.
func reservableOf(
	round *controller.Round, on *snapshot.Host, user snapshot.Username, caps []service.CapUse, places map[string]int,
) *service.Reservable {
	rule, known := round.Policy.ReservationRule(user)
	if rule == nil {
		if known {
			return nil
		}
		return &service.Reservable{Unknown: true}
	}
	booking := &service.Reservable{ReservationRule: *rule}
	settings := round.Policy.Settings(enforce.Query{Host: on.Name, Labels: on.Labels, At: round.Now})
	booking.Warn = settings.WarnOf(enforce.RuleReservations).For
	account := round.Policy.Account(user)
	for i := range round.Cluster.Hosts {
		h := &round.Cluster.Hosts[i]
		if h.Name == on.Name || h.Snapshot == nil {
			continue
		}
		for _, b := range h.Snapshot.Reservations {
			if round.Policy.Account(gpus.UserName(b.Username, &b.UID)) != account {
				continue
			}
			known := snapshot.Reservation{From: b.From, Until: b.Until, Ended: b.Ended, Lapsed: b.Lapsed}
			booking.Elsewhere = append(booking.Elsewhere, known)
			for _, count := range round.Plan.Counts.On(h.Name, account) {
				known.GPUs = b.GPUs - (len(h.Snapshot.Devices) - len(count.GPUs)) // some may not be of the cap
				if at, counts := places[placeOf(&count)]; counts && known.GPUs > 0 {
					caps[at].Booked = append(caps[at].Booked, known)
				}
			}
		}
	}
	return booking
}

// peopleOf returns at most maxPeople users with their names on the host: first those who wait, then those who asked
// lately, and then those with environments or processes.
func peopleOf(s *snapshot.Snapshot) map[snapshot.UID]snapshot.Username {
	people := make(map[snapshot.UID]snapshot.Username)
	add := func(uid snapshot.UID, name snapshot.Username) {
		if _, known := people[uid]; uid != 0 && (known || len(people) < maxPeople) { // no cap counts root
			people[uid] = cmp.Or(people[uid], name)
		}
	}
	for i := range s.Waits {
		add(s.Waits[i].UID, s.Waits[i].Username)
	}
	if s.Asked != nil {
		for _, who := range s.Asked.People {
			add(who.UID, who.Username)
		}
	}
	for i := range s.Environments {
		if env := &s.Environments[i]; !env.OwnerMismatch {
			add(env.UID, env.Username)
		}
	}
	for i := range s.Processes {
		if user, uid := s.Processes[i].CountsFor(); uid != nil {
			add(*uid, user)
		}
	}
	for uid, name := range people {
		people[uid] = gpus.UserName(name, &uid)
	}
	return people
}

func (a *Allowances) rulesOf(policy enforce.Policy, q enforce.Query) []service.Rule {
	for _, subject := range []enforce.Subject{{Host: q.Host}, {Host: q.Host, User: q.User}} {
		if reason, exempt := policy.Exempt(subject); exempt {
			return []service.Rule{{Key: "exempt", Value: reason}}
		}
	}
	s := policy.Settings(q)
	if known, ok := a.rules[s]; ok {
		return known
	}
	var list []service.Rule
	for _, key := range slices.Concat(enforce.Keys(), enforce.RuleWarns()) {
		if value := key.Text(s); value != "" {
			list = append(list, service.Rule{Key: key.Key, Value: value})
		}
	}
	a.rules[s] = list
	return list
}

func placeOf(c *enforce.CapCount) string { return c.Place + "/" + string(c.Rule) }

func use(told *service.Allowance, places map[string]int, c *enforce.CapCount, now time.Time) service.CapUse {
	u := service.CapUse{Limit: c.Limit, Here: c.Here, Elsewhere: c.Elsewhere, Hosts: c.Hosts, GPUs: c.HereGPUs}
	if c.Counts == enforce.CapHours.String() {
		u.Elsewhere = c.Used
	}
	if !c.Seen.IsZero() {
		u.SeenMS = max(0, now.Sub(c.Seen)).Milliseconds()
	}
	place, known := places[placeOf(c)]
	if !known {
		place = len(told.Caps)
		places[placeOf(c)] = place
		told.Caps = append(told.Caps, service.Cap{
			Name: c.Name, Rule: string(c.Rule), Model: strings.Trim(c.Model, "*"), Counts: c.Counts,
			GPUs: c.GPUs, Together: c.Together, PerHost: c.PerHost, While: c.While, Until: c.Until,
		})
	}
	u.Cap = place
	return u
}
