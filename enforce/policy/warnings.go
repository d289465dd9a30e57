package policy

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Warning is about something in a policy that has no effect, or may not be meant so.
type Warning struct {
	Place   strictyaml.Place
	Kind    string // key or cap, of one without effect; Hint for advice
	Name    string // the key, or the ID of the cap
	Message string // in one line, with what to write instead
}

// Hint is the kind of warnings that are advice.
const Hint = "hint"

// Warnings are the problems of a policy besides errors, for hosts with their GPUs by model (nil if unknown).
func (f *File) Warnings(hosts iter.Seq2[enforce.Query, map[string]int]) []Warning {
	list := slices.Clone(f.Ignored)
	add := func(at strictyaml.Place, kind, name, message string) {
		if at.Line > 0 && message != "" {
			list = append(list, Warning{at, kind, name, message})
		}
	}
	for i, c := range f.CapList {
		add(c.place, "cap", c.ID, f.takesNothing(i))
		add(c.place, "cap", c.ID, c.takesAll(hosts))
		add(c.place, Hint, c.ID, c.meansShare(hosts))
	}
	add(f.actsAtOnce(), Hint, "warn",
		"it acts without a warning: with warn: 10m under `defaults:`, people are told before")
	add(f.endsNothing(), "key", string(enforce.RuleIdle),
		"`end` ends nothing: GPUs with a process are not idle without `below:` or `below-power:`, such as below: 5")
	add(f.countsNoneOutside(), Hint, string(enforce.RuleNonEnvProcesses),
		"people outside of environments don't count: write non-env-processes: count under `defaults:`")
	if f.Mail != nil {
		for _, at := range f.warnsFor(MailGather + f.Mail.Timeout) {
			add(at, Hint, "warn",
				"the warning may be over before its mail arrives, which leaves within a minute: write 5m or more")
		}
	}
	return list
}

// takesNothing is why a cap can never take anything; empty if it can.
func (f *File) takesNothing(index int) string {
	c := f.CapList[index]
	if why := f.neverBinds(c); why != "" {
		return "the cap takes nothing: " + why
	}
	for i, other := range f.CapList {
		if i != index && other.implies(c) && !(c.implies(other) && index < i) {
			return fmt.Sprintf("the cap takes nothing: the one at %s allows no more, for the same people and GPUs",
				other.Place)
		}
	}
	return ""
}

func (f *File) warnOf(c *Cap) enforce.Warn {
	if c.Warn != nil {
		return *c.Warn
	}
	return f.Settings(enforce.Query{}).WarnOf(enforce.RuleCaps)
}

func (f *File) neverBinds(c *Cap) string {
	all := func(list []entry, is func(entry) bool) bool {
		return len(list) > 0 && !slices.ContainsFunc(list, func(e entry) bool { return !is(e) })
	}
	isEmpty := func(e entry) bool { return e.users != nil && len(e.users) == 0 }
	isExempt := func(e entry) bool {
		for user := range e.users {
			if _, exempt := f.exemptions.users[snapshot.Username(user)]; !exempt {
				return false
			}
		}
		return e.users != nil
	}
	leavesOut := func(s *selection) bool { // those that it names, or all
		isOut := func(e entry) bool {
			return slices.ContainsFunc(s.without, func(out entry) bool { return out.written == e.written })
		}
		return isOut(entry{written: "*"}) || all(s.entries, isOut)
	}
	isEver := func(h hours) bool { _, ever := h.common(&h); return ever }
	people := slices.Concat(c.users.entries, c.by)
	switch {
	case leavesOut(&c.users) || leavesOut(&c.hosts):
		return "all that it names is left out by \"!\""
	case c.limit.Percent && c.limit.Value == 100:
		return "100% are all GPUs"
	case c.limit.AllBut && c.limit.Value == 0:
		return "-0 leaves out none"
	case all(people, isEmpty) || c.waiting != nil && all(c.waiting.entries, isEmpty):
		return "its groups have no members"
	case all(people, isExempt):
		return "its users are exempt"
	case c.when != nil && !slices.ContainsFunc(c.when.entries, isEver):
		return fmt.Sprintf("schedule %s has no hours", c.when.Name)
	case c.when != nil && c.when.longest() > 0 && c.when.longest() <= f.warnOf(c).For/4*3: // it is spread over people
		return fmt.Sprintf("its warning takes %s, and schedule %s lasts for %s at most: give it a shorter `warn`",
			text.FormatDuration(f.warnOf(c).For), c.when.Name, text.FormatDuration(c.when.longest()))
	}
	return ""
}

// implies reports whether a cap makes another one superfluous: for all of its people, GPUs and times, with the same
// warning, it allows no more.
func (c *Cap) implies(other *Cap) bool {
	less := c.limit.Value <= other.limit.Value
	if c.limit.AllBut {
		less = c.limit.Value >= other.limit.Value
	}
	sameWarn := c.Warn == nil && other.Warn == nil || c.Warn != nil && other.Warn != nil && *c.Warn == *other.Warn
	sameUsers := c.users.text("") == "" || c.users.text("") == other.users.text("")
	gpus := func(c *Cap) string { return c.gpus() + c.hosts.text("") }
	isShare := c.limit.Percent || c.limit.AllBut // of other GPUs it is another number
	return c.by == nil && other.by == nil && c.Kind == other.Kind && c.every == other.every && less && sameWarn &&
		c.limit.Percent == other.limit.Percent && c.limit.AllBut == other.limit.AllBut &&
		sameUsers && (gpus(c) == gpus(other) || gpus(c) == "" && !isShare) &&
		(!isShare || c.PerHost == other.PerHost) &&
		(c.when == nil || c.when == other.when) && c.waiting == nil &&
		(c.Together || !other.Together) && (!c.PerHost || other.PerHost)
}

// takesAll says where a cap of all but some GPUs of each host leaves none; empty for no known host.
func (c *Cap) takesAll(hosts iter.Seq2[enforce.Query, map[string]int]) string {
	if !c.PerHost || !c.limit.AllBut {
		return ""
	}
	for q, byModel := range hosts {
		if n := c.gpusOf(q, byModel); n > 0 && n <= c.limit.Value {
			return fmt.Sprintf("on %s nothing may be taken: it has %s", q.Host, text.Plural(int(n), "GPU"))
		}
	}
	return ""
}

// meansShare says where a cap allows more GPUs than there are: a percentage was perhaps meant. Empty if GPUs are
// unknown.
func (c *Cap) meansShare(hosts iter.Seq2[enforce.Query, map[string]int]) string {
	isNumber := c.Kind == enforce.CapGPUs && c.by == nil && !c.limit.Percent && !c.limit.AllBut
	if !isNumber || c.limit.Value < 10 || c.limit.Value > 100 {
		return ""
	}
	there, where := int64(0), "there are"
	for q, byModel := range hosts {
		n := c.gpusOf(q, byModel)
		switch {
		case byModel == nil:
			return ""
		case c.PerHost:
			there, where = max(there, n), "a host has"
		default:
			there += n
		}
	}
	if there == 0 || c.limit.Value <= there {
		return ""
	}
	return fmt.Sprintf("%d GPUs are more than the %d that %s: write %d%% for a share of them", c.limit.Value, there,
		where, c.limit.Value)
}

func (c *Cap) gpusOf(q enforce.Query, byModel map[string]int) int64 {
	if !c.onHost(q.Host, q.Labels) {
		return 0
	}
	return c.Count(byModel)
}

// actsAtOnce is the first place of a cap or rule that acts without a warning in the file; zero for none.
func (f *File) actsAtOnce() (first strictyaml.Place) {
	says := func(s *Settings, key string) bool { return s.From[key].Place.Line > 0 }
	if says(&f.Defaults, "warn") {
		return first
	}
	add := func(at strictyaml.Place) {
		if first.Line == 0 || cmp.Or(at.Line-first.Line, at.Column-first.Column) < 0 {
			first = at
		}
	}
	for _, c := range f.CapList {
		if c.Warn == nil {
			add(c.place)
		}
	}
	for _, s := range f.written() {
		for _, rule := range enforce.RuleNames() {
			warns := says(s, "warn") || says(s, enforce.WarnOfRule+rule) ||
				rule == string(enforce.RuleIdle) && s.Idle != nil && s.Idle.Warn != nil
			setting, _ := enforce.Rule(rule).Setting()
			if says(s, rule) && !warns && !slices.Contains([]string{"off", "count"}, setting.Text(&s.Settings)) {
				add(s.From[rule].Place)
			}
		}
	}
	return first
}

// countsNoneOutside is the place of the first cap or idle, if people outside of environments don't count; else zero.
func (f *File) countsNoneOutside() (first strictyaml.Place) {
	for _, s := range f.written() {
		if s.NonEnvProcesses || s.CountOutside {
			return strictyaml.Place{}
		}
		if s.Idle != nil && first.Line == 0 {
			first = s.From[string(enforce.RuleIdle)].Place
		}
	}
	if first.Line == 0 && len(f.CapList) > 0 {
		first = f.CapList[0].place
	}
	return first
}

// endsNothing is the place of an idle rule with end that considers no GPU with a process idle; zero for none.
func (f *File) endsNothing() strictyaml.Place {
	for _, s := range f.written() {
		if i := s.Idle; i != nil && i.End && i.Below == 0 && i.BelowPower == 0 {
			return s.From[string(enforce.RuleIdle)].Place
		}
	}
	return strictyaml.Place{}
}

func (f *File) written() []*Settings {
	list := []*Settings{&f.Defaults}
	for i := range f.overrides {
		list = append(list, &f.overrides[i].set)
	}
	return list
}

func (f *File) warnsFor(less time.Duration) (list []strictyaml.Place) {
	add := func(warn *enforce.Warn, at strictyaml.Place) {
		if warn != nil && warn.For > 0 && warn.For < less {
			list = append(list, at)
		}
	}
	for _, s := range f.written() {
		add(&s.Warn, s.From["warn"].Place)
		for rule, warn := range s.RuleWarns {
			add(&warn, s.From[enforce.WarnOfRule+string(rule)].Place)
		}
		if s.Idle != nil {
			add(s.Idle.Warn, s.From[string(enforce.RuleIdle)].Place)
		}
	}
	for _, c := range f.CapList {
		add(c.Warn, c.place)
	}
	return list
}
