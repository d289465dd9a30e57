package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
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

// Cap is a cap of the list, as in the file and, except for what depends on the time, as the judge has it.
type Cap struct {
	enforce.Cap
	place   strictyaml.Place
	limit   enforce.CapLimit // of everybody whom it is about, without by
	by      []entry          // by person, each with a limit; nil for one limit
	users   selection
	hosts   selection
	labels  map[string]string
	waiting *selection // nil for a cap that holds always
	every   string     // month or week, of GPU hours
	when    *Schedule
	zone    *time.Location
	written string // the amount
}

type entry struct {
	written string // as in the file
	has     func(name string) enforce.Membership
	users   map[string]bool  // a user, or those of a group of the file; nil for others
	limit   enforce.CapLimit // what each of them may have
}

// selection is what entries name, or all without any, except what without names.
type selection struct{ entries, without []entry }

func (s *selection) has(name string) enforce.Membership {
	in := enforce.Member
	if len(s.entries) > 0 {
		in = hasAny(s.entries, name)
	}
	switch out := hasAny(s.without, name); {
	case in == enforce.NotMember || out == enforce.Member:
		return enforce.NotMember
	case out == enforce.MembershipUnknown:
		return out
	}
	return in
}

func hasAny(list []entry, name string) (most enforce.Membership) {
	for i := range list {
		switch list[i].has(name) {
		case enforce.Member:
			return enforce.Member
		case enforce.MembershipUnknown:
			most = enforce.MembershipUnknown
		}
	}
	return most
}

func memberIf(is bool) enforce.Membership {
	if is {
		return enforce.Member
	}
	return enforce.NotMember
}

func (s *selection) text(all string) string {
	words := func(list []entry) string {
		var names []string
		for i := range list {
			names = append(names, list[i].written)
		}
		return strings.Join(names, ", ")
	}
	if len(s.entries) > 0 {
		all = words(s.entries)
	}
	if len(s.without) > 0 {
		all += " but " + words(s.without)
	}
	return all
}

// limitOf is a person's limit: by name, else the largest of the groups, else that of all others; the largest possible
// one while a membership is unknown.
func (c *Cap) limitOf(user snapshot.Username) (limit enforce.CapLimit, about bool) {
	if c.by == nil {
		return c.limit, true
	}
	var all *enforce.CapLimit
	unknown := false
	for i := range c.by {
		by := &c.by[i]
		member := by.has(string(user))
		switch {
		case by.written == "*":
			all = &by.limit
			continue
		case member == enforce.NotMember:
			continue
		case !strings.ContainsAny(by.written[:1], "@%"):
			return by.limit, true
		case member == enforce.MembershipUnknown:
			unknown = true
		default:
			about = true
		}
		limit.Value = max(limit.Value, by.limit.Value)
	}
	switch {
	case about:
		return limit, true
	case all == nil: // who may be a member of no group has no cap
		return enforce.CapLimit{}, false
	case unknown:
		return enforce.CapLimit{Value: max(limit.Value, all.Value)}, true
	}
	return *all, true
}

// Without the inventory no host is in a group.
func (c *Cap) onHost(host snapshot.Hostname, labels map[string]string) bool {
	return hasLabels(labels, c.labels) && c.hosts.has(string(host)) == enforce.Member
}

// MatchModel reports whether a glob matches the driver's name of a GPU. No glob matches an unknown name.
func MatchModel(glob, model string) bool {
	fold := func(name string) []rune { return []rune(strings.TrimPrefix(strings.ToLower(name), "nvidia ")) }
	return model != "" && text.MatchGlob(fold(glob), fold(model))
}

func (c *Cap) complete() {
	if c.ID = c.Name; c.ID == "" {
		sum := sha256.Sum256([]byte(c.String()))
		c.ID = hex.EncodeToString(sum[:4])
	}
	c.Place, c.Of, c.Scheduled = c.place.String(), strings.TrimSpace(c.gpus()), c.when != nil
	c.OnHost, c.Limit = c.onHost, c.limitOf
	memberOf := func(people *selection) func(snapshot.Username) enforce.Membership {
		return func(user snapshot.Username) enforce.Membership { return people.has(string(user)) }
	}
	c.Member = memberOf(&c.users)
	if c.Model != "" {
		c.OfModel = func(model string) bool { return MatchModel(c.Model, model) }
	}
	if c.waiting != nil {
		c.Waiting, c.WaitingAnybody = memberOf(c.waiting), len(c.waiting.entries)+len(c.waiting.without) == 0
	}
}

// Caps implements enforce.Policy.
func (f *File) Caps(at time.Time) (list []*enforce.Cap) {
	for _, c := range f.CapList {
		held := c.Cap
		held.Inactive = c.when != nil && !at.IsZero() && !c.when.Contains(at)
		switch {
		case c.Kind == enforce.CapHours:
			held.Period, held.PeriodEnd = c.period(at)
		case held.Inactive:
			continue
		case c.when != nil && !at.IsZero():
			held.PeriodEnd = c.when.until(at)
		}
		list = append(list, &held)
	}
	return list
}

func (c *Cap) period(now time.Time) (begin, end time.Time) {
	year, month, day := now.In(c.zone).Date()
	if c.every == "month" {
		return time.Date(year, month, 1, 0, 0, 0, 0, c.zone), time.Date(year, month+1, 1, 0, 0, 0, 0, c.zone)
	}
	monday := day - (int(now.In(c.zone).Weekday())+6)%7
	return time.Date(year, month, monday, 0, 0, 0, 0, c.zone), time.Date(year, month, monday+7, 0, 0, 0, 0, c.zone)
}

type reservation struct {
	users selection
	rule  snapshot.ReservationRule
}

// ReservationRule implements enforce.Policy: the first rule about the person counts.
func (f *File) ReservationRule(user snapshot.Username) (rule *snapshot.ReservationRule, known bool) {
	for i := range f.reservations {
		r := f.reservations[i]
		switch r.users.has(string(f.Accounts.Name(user))) {
		case enforce.Member:
			return &r.rule, true
		case enforce.MembershipUnknown:
			return nil, false
		}
	}
	return nil, true
}

// AskUnix sets the source of Unix groups, such as nss.GroupMembers' Member, before Settings is called.
func (f *File) AskUnix(ask func(user, group string) (member, known bool)) {
	f.UnixGroups = func(user snapshot.Username, group string) enforce.Membership {
		member, known := ask(string(user), group)
		if !known {
			return enforce.MembershipUnknown
		}
		return memberIf(member)
	}
}

func (f *File) inUnixGroup(user, group string) enforce.Membership {
	if f.UnixGroups == nil {
		return enforce.MembershipUnknown
	}
	return f.UnixGroups(snapshot.Username(user), group)
}

// UnixGroupNames are the Unix groups that the policy names, sorted.
func (f *File) UnixGroupNames() []string {
	names := make(map[string]bool)
	for _, r := range f.References {
		if r.Kind == ToUnixGroup {
			names[r.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// UseHostGroups gives caps the host groups of the inventory, and reads them only if a cap names one. A missing group is
// a *strictyaml.ParseError.
func (f *File) UseHostGroups(read func() (map[string][]string, error)) (err error) {
	var unknown []error
	for _, r := range f.References {
		group, isGroup := strings.CutPrefix(r.Name, "@")
		if r.Kind != ToHost || !isGroup {
			continue
		}
		if f.HostGroups == nil {
			if f.HostGroups, err = read(); err != nil {
				return err
			}
		}
		if _, known := f.HostGroups[group]; !known {
			hint := text.Hint(group, slices.Sorted(maps.Keys(f.HostGroups)), "add it there, or name hosts")
			unknown = append(unknown, &strictyaml.ParseError{
				Place: r.Place, Message: fmt.Sprintf("@%s: no such host group in the inventory; %s", group, hint),
			})
		}
	}
	return errors.Join(unknown...)
}

// CheckHours refuses caps of GPU hours unless all controllers share one table.
func (f *File) CheckHours(oneTable bool) error {
	var refused []error
	for _, c := range f.CapList {
		if c.Kind == enforce.CapHours && !oneTable {
			refused = append(refused, &strictyaml.ParseError{Place: c.place, Message: "gpu-hours: with --leader all " +
				"controllers count them in one PostgreSQL database; name it with --usage-db postgres://…"})
		}
	}
	return errors.Join(refused...)
}

// String is the cap in words.
func (c *Cap) String() string {
	s := c.amount()
	if !c.Together && c.by == nil {
		s += " each"
	}
	s += c.gpus() + " on " + c.hosts.text("all hosts")
	if c.PerHost {
		s += ", each by itself, "
	} else {
		s += " together, "
	}
	if c.Together {
		s += "shared by "
	} else {
		s += "for "
	}
	s += c.users.text("everybody")
	if c.when != nil {
		s += ", in schedule " + c.when.Name
	}
	if c.waiting != nil {
		s += ", as far as others wait: " + c.waiting.text("everybody")
	}
	return s
}

func (c *Cap) gpus() (s string) {
	if c.Model != "" {
		s += " of model " + c.Model
	}
	for _, key := range slices.Sorted(maps.Keys(c.labels)) {
		s += fmt.Sprintf(" with label %s=%s", key, c.labels[key])
	}
	return s
}
