package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Cap is one of the list of caps, as the file has it.
type Cap struct {
	Name     string
	Place    strictyaml.Place
	Kind     enforce.CapKind
	Limit    enforce.CapLimit // of everybody whom it is about, without By
	By       []personLimit    // by person; nil for one limit
	Users    people
	Of       gpuSelection
	Together bool
	PerHost  bool
	Every    string // month or week, of GPU hours
	When     *Schedule
	Waiting  *people // nil for a cap that holds always
	Warn     *enforce.Warn

	written string // the amount
	zone    *time.Location
}

// personLimit is the limit of somebody: of a person, of the members of a group, or of all others.
type personLimit struct {
	who   person
	limit enforce.CapLimit
}

// person is an account, a group of the file, a Unix group, or everybody.
type person struct {
	written string // as in the file
	users   map[string]bool
	unix    string // the name of a Unix group
}

// people are those in one of the entries, less those of without. Without entries it is everybody else.
type people struct{ entries, without []person }

// gpuSelection is which GPUs a cap is about: all that is set must match.
type gpuSelection struct {
	hosts, withoutHosts []hostEntry
	writtenHosts        []string
	labels              map[string]string
	model               string // a glob
}

// hostEntry is hosts by name, or a group of the inventory.
type hostEntry struct {
	pattern text.HostPattern
	group   string
	place   strictyaml.Place // of a group
}

// unixGroups says who is in a Unix group.
type unixGroups = func(user snapshot.Username, group string) enforce.Membership

func (p *person) has(user snapshot.Username, unix unixGroups) enforce.Membership {
	switch {
	case p.unix != "":
		return unix(user, p.unix)
	case p.written == "*" || p.users[string(user)]:
		return enforce.Member
	}
	return enforce.NotMember
}

func (p *people) has(user snapshot.Username, unix unixGroups) enforce.Membership {
	in := enforce.Member
	if len(p.entries) > 0 {
		in = hasAny(p.entries, user, unix)
	}
	switch out := hasAny(p.without, user, unix); {
	case in == enforce.NotMember || out == enforce.Member:
		return enforce.NotMember
	case out == enforce.MembershipUnknown:
		return out
	}
	return in
}

func hasAny(list []person, user snapshot.Username, unix unixGroups) (most enforce.Membership) {
	for i := range list {
		switch list[i].has(user, unix) {
		case enforce.Member:
			return enforce.Member
		case enforce.MembershipUnknown:
			most = enforce.MembershipUnknown
		}
	}
	return most
}

// limitOf is the limit of a person: by name, else the largest of the groups, else of all others. While a membership is
// unknown it is the largest that the person might have.
func (c *Cap) limitOf(user snapshot.Username, unix unixGroups) (limit enforce.CapLimit, about bool) {
	if c.By == nil {
		return c.Limit, true
	}
	var all *enforce.CapLimit
	unknown := false
	larger := func(other enforce.CapLimit) { limit = enforce.CapLimit{Value: max(limit.Value, other.Value)} }
	for i := range c.By {
		by := &c.By[i]
		isGroup := by.who.unix != "" || strings.HasPrefix(by.who.written, "@")
		switch member := by.who.has(user, unix); {
		case by.who.written == "*":
			all = &by.limit
		case member == enforce.NotMember:
		case !isGroup:
			return by.limit, true
		case member == enforce.MembershipUnknown:
			unknown = true
			larger(by.limit)
		default:
			about = true
			larger(by.limit)
		}
	}
	switch {
	case about:
		return limit, true
	case all == nil: // who may be a member of no group has no cap
		return enforce.CapLimit{}, false
	case unknown:
		larger(*all)
		return limit, true
	}
	return *all, true
}

// onHost reports whether a host is one of them. Without the inventory no host is, where one of its groups is named.
func (f *File) onHost(g *gpuSelection, host snapshot.Hostname, labels map[string]string) bool {
	known := true
	matches := func(e hostEntry) bool {
		if e.group == "" {
			return e.pattern.Matches(string(host))
		}
		members, ok := f.HostGroups[e.group]
		known = known && ok
		return slices.ContainsFunc(members, func(name string) bool {
			return text.FoldHost(name) == text.FoldHost(string(host))
		})
	}
	on := len(g.hosts) == 0 || slices.ContainsFunc(g.hosts, matches)
	if !on || slices.ContainsFunc(g.withoutHosts, matches) || !known {
		return false
	}
	for key, value := range g.labels {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// MatchModel reports whether a glob matches the driver's name of a GPU; unknown names are matched by none.
func MatchModel(glob, model string) bool {
	fold := func(name string) []rune { return []rune(strings.TrimPrefix(strings.ToLower(name), "nvidia ")) }
	return model != "" && text.MatchGlob(fold(glob), fold(model))
}

// ID names the cap in findings: its name or, without one, a digest of what it says.
func (c *Cap) ID() string {
	if c.Name != "" {
		return c.Name
	}
	sum := sha256.Sum256([]byte(c.String()))
	return hex.EncodeToString(sum[:4])
}

// capAt is a cap as it holds at a moment; ok is false if it doesn't.
func (f *File) capAt(c *Cap, now time.Time, unix unixGroups) (held *enforce.Cap, ok bool) {
	holds := c.When == nil || now.IsZero() || c.When.Contains(now)
	if !holds && c.Kind != enforce.CapHours {
		return nil, false
	}
	held = &enforce.Cap{
		ID: c.ID(), Name: c.Name, Place: c.Place.String(), Kind: c.Kind, Together: c.Together, PerHost: c.PerHost,
		Scheduled: c.When != nil, Resting: !holds, Warn: c.Warn,
		OnHost: func(host snapshot.Hostname, labels map[string]string) bool { return f.onHost(&c.Of, host, labels) },
		Limit:  func(user snapshot.Username) (enforce.CapLimit, bool) { return c.limitOf(user, unix) },
		Member: func(user snapshot.Username) enforce.Membership { return c.Users.has(user, unix) },
	}
	if c.Of.model != "" {
		held.Model, held.OfModel = c.Of.model, func(model string) bool { return MatchModel(c.Of.model, model) }
	}
	if c.Waiting != nil {
		held.Waiting = func(user snapshot.Username) enforce.Membership { return c.Waiting.has(user, unix) }
		held.WaitingAnybody = len(c.Waiting.entries)+len(c.Waiting.without) == 0
	}
	if c.Kind == enforce.CapHours {
		held.Period, held.PeriodEnd = c.period(now)
	}
	return held, true
}

// period is the month or week in which hours count.
func (c *Cap) period(now time.Time) (begin, end time.Time) {
	year, month, day := now.In(c.zone).Date()
	if c.Every == "month" {
		return time.Date(year, month, 1, 0, 0, 0, 0, c.zone), time.Date(year, month+1, 1, 0, 0, 0, 0, c.zone)
	}
	monday := day - (int(now.In(c.zone).Weekday())+6)%7
	return time.Date(year, month, monday, 0, 0, 0, 0, c.zone), time.Date(year, month, monday+7, 0, 0, 0, 0, c.zone)
}

// Caps implements enforce.Policy.
func (f *File) Caps(at time.Time) (list []*enforce.Cap) {
	unix := f.unixGroups()
	for _, c := range f.CapList {
		if held, holds := f.capAt(c, at, unix); holds {
			list = append(list, held)
		}
	}
	return list
}

// Booking implements enforce.Policy: the first rule about the person is the one that counts.
func (f *File) Booking(user snapshot.Username) (rule *snapshot.BookingRule, known bool) {
	unix := f.unixGroups()
	user = f.Accounts.Name(user)
	for i := range f.Reservations {
		r := &f.Reservations[i]
		switch r.Users.has(user, unix) {
		case enforce.Member:
			return &snapshot.BookingRule{
				GPUs: r.GPUs, AtOnce: r.AtOnce, Longest: r.Longest, Ahead: r.Ahead, Pause: r.Pause,
			}, true
		case enforce.MembershipUnknown:
			return nil, false
		}
	}
	return nil, true
}

// AskUnix has the policy ask who is in Unix groups: nss.GroupMembers' Member, say. It is called before Settings.
func (f *File) AskUnix(ask func(user, group string) (member, known bool)) {
	f.UnixGroups = func() func(snapshot.Username, string) enforce.Membership {
		return func(user snapshot.Username, group string) enforce.Membership {
			switch member, known := ask(string(user), group); {
			case !known:
				return enforce.MembershipUnknown
			case member:
				return enforce.Member
			}
			return enforce.NotMember
		}
	}
}

// unixGroups says what is known now of who is in which Unix group.
func (f *File) unixGroups() unixGroups {
	if f.UnixGroups != nil {
		return f.UnixGroups()
	}
	return func(snapshot.Username, string) enforce.Membership { return enforce.MembershipUnknown }
}

// UnixGroupNames are the Unix groups that the policy names, sorted.
func (f *File) UnixGroupNames() []string {
	names := make(map[string]bool)
	for _, c := range f.CapList {
		lists := [][]person{c.Users.entries, c.Users.without}
		if c.Waiting != nil {
			lists = append(lists, c.Waiting.entries, c.Waiting.without)
		}
		for _, by := range c.By {
			lists = append(lists, []person{by.who})
		}
		for _, p := range slices.Concat(lists...) {
			if p.unix != "" {
				names[p.unix] = true
			}
		}
	}
	for _, res := range f.Reservations {
		for _, p := range slices.Concat(res.Users.entries, res.Users.without) {
			if p.unix != "" {
				names[p.unix] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// String is what the cap says, in words.
func (c *Cap) String() string {
	hosts := "all hosts"
	if len(c.Of.writtenHosts) > 0 {
		hosts = strings.Join(c.Of.writtenHosts, ", ")
	}
	s := c.amount()
	if !c.Together && c.By == nil {
		s += " each"
	}
	s += c.Of.String() + " on " + hosts
	if c.PerHost {
		s += ", each by itself, "
	} else {
		s += " together, "
	}
	if c.Together {
		s += "shared by " + c.Users.String()
	} else {
		s += "for " + c.Users.String()
	}
	if c.When != nil {
		s += ", in schedule " + c.When.Name
	}
	if c.Waiting != nil {
		s += ", as far as others wait: " + c.Waiting.String()
	}
	return s
}

func (p *people) String() string {
	words := func(list []person) string {
		var names []string
		for _, who := range list {
			names = append(names, who.written)
		}
		return strings.Join(names, ", ")
	}
	s := "everybody"
	if len(p.entries) > 0 {
		s = words(p.entries)
	}
	if len(p.without) > 0 {
		s += " but " + words(p.without)
	}
	return s
}

// String is the model and the labels, in words.
func (g *gpuSelection) String() (s string) {
	if g.model != "" {
		s += " of model " + g.model
	}
	for _, key := range slices.Sorted(maps.Keys(g.labels)) {
		s += fmt.Sprintf(" with label %s=%s", key, g.labels[key])
	}
	return s
}
