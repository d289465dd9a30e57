package policy

import (
	"cmp"
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

// UseHostGroups has caps know the hosts of the groups of the inventory, which is read only if a cap names one. Its
// error is also that of groups that aren't there, each a *strictyaml.ParseError.
func (f *File) UseHostGroups(read func() (map[string][]string, error)) error {
	var unknown []error
	for _, c := range f.CapList {
		for _, e := range slices.Concat(c.Of.hosts, c.Of.withoutHosts) {
			if e.group == "" {
				continue
			}
			if f.HostGroups == nil {
				groups, err := read()
				if err != nil {
					return err
				}
				f.HostGroups = groups
			}
			if _, known := f.HostGroups[e.group]; !known {
				hint := text.Hint(e.group, slices.Sorted(maps.Keys(f.HostGroups)), "add it there, or name hosts")
				unknown = append(unknown, &strictyaml.ParseError{
					Place: e.place, Message: fmt.Sprintf("@%s: no such host group in the inventory; %s", e.group, hint),
				})
			}
		}
	}
	return errors.Join(unknown...)
}

// CapWarnings are the caps that can never take anything, each by its name.
func (f *File) CapWarnings() (list []Ignored) {
	for i, c := range f.CapList {
		warn := func(format string, args ...any) {
			list = append(list, Ignored{Key: c.ID(), Place: c.Place, Message: fmt.Sprintf(format, args...)})
		}
		if why := f.neverBinds(c); why != "" {
			warn("the cap takes nothing: %s", why)
			continue
		}
		for j, other := range f.CapList {
			if i != j && other.implies(c) && !(c.implies(other) && i < j) {
				warn("the cap takes nothing: the one at %s allows no more, for the same people and GPUs", other.Place)
				break
			}
		}
	}
	return list
}

// neverBinds is why a cap can't be exceeded; empty if it can.
func (f *File) neverBinds(c *Cap) string {
	isEmpty := func(p person) bool { return p.unix == "" && p.written != "*" && len(p.users) == 0 }
	isExempt := func(p person) bool {
		for user := range p.users {
			if _, exempt := f.Exemptions.users[snapshot.Username(user)]; !exempt {
				return false
			}
		}
		return p.unix == "" && p.written != "*"
	}
	switch {
	case c.Limit.Percent && c.Limit.Value == 100:
		return "100% are all GPUs"
	case c.Limit.AllBut && c.Limit.Value == 0:
		return "-0 leaves out none"
	case len(c.Users.entries) > 0 && !slices.ContainsFunc(c.Users.entries, func(p person) bool { return !isEmpty(p) }):
		return "its groups have no members"
	case len(c.Users.entries) > 0 && !slices.ContainsFunc(c.Users.entries, func(p person) bool { return !isExempt(p) }):
		return "its users are exempt"
	case c.When != nil && !slices.ContainsFunc(c.When.entries, func(h hours) bool { _, ever := h.common(&h); return ever }):
		return fmt.Sprintf("schedule %s has no hours", c.When.Name)
	}
	return ""
}

// implies reports whether a cap holds wherever another is kept: it is about all of the other's people, GPUs and times,
// allows no more, and its warning is the same.
func (c *Cap) implies(other *Cap) bool {
	less := c.Limit.Value <= other.Limit.Value
	if c.Limit.AllBut {
		less = c.Limit.Value >= other.Limit.Value
	}
	sameWarn := c.Warn == nil && other.Warn == nil || c.Warn != nil && other.Warn != nil && *c.Warn == *other.Warn
	sameUsers := len(c.Users.entries)+len(c.Users.without) == 0 || c.Users.String() == other.Users.String()
	gpus := func(c *Cap) string { return c.Of.String() + strings.Join(c.Of.writtenHosts, ",") }
	sameGPUs := gpus(c) == gpus(other)
	isShare := c.Limit.Percent || c.Limit.AllBut // of other GPUs it is another number
	return c.By == nil && other.By == nil && c.Kind == other.Kind && c.Every == other.Every && less && sameWarn &&
		c.Limit.Percent == other.Limit.Percent && c.Limit.AllBut == other.Limit.AllBut &&
		sameUsers && (sameGPUs || gpus(c) == "" && !isShare) && (!isShare || c.PerHost == other.PerHost) &&
		(c.When == nil || c.When == other.When) && c.Waiting == nil &&
		(c.Together || !other.Together) && (!c.PerHost || other.PerHost)
}

// TakesAll says in words where a cap of all but some GPUs of each host leaves none, since the host has no more; empty
// if that is on no host. Unknown hosts are left out.
func (f *File) TakesAll(c *Cap, on func(yield func(enforce.Query, map[string]int) bool)) string {
	if !c.PerHost || !c.Limit.AllBut {
		return ""
	}
	for q, byModel := range on {
		if n := f.gpusOf(c, q, byModel); n > 0 && int64(n) <= c.Limit.Value {
			return fmt.Sprintf("on %s nothing may be taken: it has %s", q.Host, text.Plural(n, "GPU"))
		}
	}
	return ""
}

// MeansShare says in words where a cap allows more GPUs than there are, as somebody writes who means a share of them;
// empty if it doesn't, or if the GPUs of a host are unknown.
func (f *File) MeansShare(c *Cap, on func(yield func(enforce.Query, map[string]int) bool)) string {
	isNumber := c.Kind == enforce.CapGPUs && c.By == nil && !c.Limit.Percent && !c.Limit.AllBut
	if !isNumber || c.Limit.Value < 10 || c.Limit.Value > 100 {
		return ""
	}
	all, most := 0, 0
	for q, byModel := range on {
		if byModel == nil {
			return ""
		}
		n := f.gpusOf(c, q, byModel)
		all, most = all+n, max(most, n)
	}
	there, where := all, "there are"
	if c.PerHost {
		there, where = most, "a host has"
	}
	if there == 0 || c.Limit.Value <= int64(there) {
		return ""
	}
	return fmt.Sprintf("%d GPUs are more than the %d that %s: write %d%% for a share of them", c.Limit.Value, there,
		where, c.Limit.Value)
}

// gpusOf is how many GPUs of a host a cap is about.
func (f *File) gpusOf(c *Cap, q enforce.Query, byModel map[string]int) (n int) {
	if !f.onHost(&c.Of, q.Host, q.Labels) {
		return 0
	}
	for model, gpus := range byModel {
		if c.Of.model == "" || MatchModel(c.Of.model, model) {
			n += gpus
		}
	}
	return n
}

// ActsAtOnce is the first place of a cap or rule of the file that acts without a warning, of which the file says
// nothing; nil for none.
func (f *File) ActsAtOnce() *strictyaml.Place {
	says := func(s *Settings, key string) bool { return s.From[key].Place.Line > 0 }
	if says(&f.Defaults, "warn") {
		return nil
	}
	var list []strictyaml.Place
	for _, c := range f.CapList {
		if c.Warn == nil {
			list = append(list, c.Place)
		}
	}
	for _, s := range f.written() {
		for _, key := range keys() {
			acts := !slices.Contains([]string{"off", "count"}, key.Text(&s.Settings))
			isRule := slices.Contains(enforce.RuleNames(), key.Key) && says(s, key.Key) && acts
			warns := says(s, "warn") || says(s, enforce.WarnOfRule+key.Key) ||
				key.Key == string(enforce.RuleIdle) && s.Idle != nil && s.Idle.Warn != nil
			if isRule && !warns {
				list = append(list, s.From[key.Key].Place)
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	first := slices.MinFunc(list, func(a, b strictyaml.Place) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	return &first
}

// CountsNoneOutside is the place of the first cap, or of idle, if people outside of environments count for none; nil
// if they do, or if there is none.
func (f *File) CountsNoneOutside() (first *strictyaml.Place) {
	for _, s := range f.written() {
		if s.NonEnvProcesses || s.CountOutside {
			return nil
		}
		if s.Idle != nil && first == nil {
			place := s.From[string(enforce.RuleIdle)].Place
			first = &place
		}
	}
	if first == nil && len(f.CapList) > 0 {
		first = &f.CapList[0].Place
	}
	return first
}

// EndsNothing is the place of an idle rule that is to end processes, and for which no GPU with one is idle; nil for
// none.
func (f *File) EndsNothing() *strictyaml.Place {
	for _, s := range f.written() {
		if i := s.Idle; i != nil && i.End && i.Below == 0 && i.BelowPower == 0 {
			place := s.From[string(enforce.RuleIdle)].Place
			return &place
		}
	}
	return nil
}

// written are the settings of the defaults and of each override.
func (f *File) written() []*Settings {
	list := []*Settings{&f.Defaults}
	for i := range f.Overrides {
		list = append(list, &f.Overrides[i].Set)
	}
	return list
}

// WarnsFor lists the places of warnings that are shorter than a time.
func (f *File) WarnsFor(less time.Duration) (list []strictyaml.Place) {
	add := func(warn enforce.Warn, at strictyaml.Place) {
		if warn.For > 0 && warn.For < less {
			list = append(list, at)
		}
	}
	for _, s := range f.written() {
		add(s.Warn, s.From["warn"].Place)
		for rule, warn := range s.RuleWarns {
			add(warn, s.From[enforce.WarnOfRule+string(rule)].Place)
		}
		if s.Idle != nil && s.Idle.Warn != nil {
			add(*s.Idle.Warn, s.From[string(enforce.RuleIdle)].Place)
		}
	}
	for _, c := range f.CapList {
		if c.Warn != nil {
			add(*c.Warn, c.Place)
		}
	}
	return list
}
