package enforce

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// Rule names a rule as its key in a policy does. The texts appear in JSON.
type Rule string

// rule is all that there is to know of a rule. Whoever adds one adds it to rules, and its value to Settings.
type rule struct {
	// Setting switches it on; its Key is the rule's name. What it may differ by says whom and what
	// can be exempted.
	Setting
	// early says that a look at one host between two full cycles may apply it.
	early  bool
	advice string               // to the user of a finding, in a sentence or two
	line   func(Finding) string // the finding in plain English
	// One of these applies it: to one host alone, or to what a user has on all hosts.
	host func(*judgement, *hostView)
	user func(*judgement, *held)
}

// rules are all rules, in the order in which they are applied: each sees in the drafts of the
// hosts' reports what ends because of those before it.
var rules = []rule{
	nonEnvProcessesRule, unreadableRule, envDevicesRule, processAgeRule,
	envMemoryRule, // what ends because of the rules above frees memory
	idleRule, maxDurationRule,
	maxEnvsRule, maxDevicesRule, maxMemoryRule, // devices that the rules above detach don't count
}

// Settings are what may differ by host, user and time. The zero Settings
// enforce nothing.
type Settings struct {
	// NonEnvProcesses terminates processes that are in no environment that is
	// registered on their host.
	NonEnvProcesses bool
	// EnvDevices terminates processes that use a device to which their
	// environment is not attached.
	EnvDevices bool
	// EnvMemory terminates processes until their environment is within its
	// memory capacity again, device by device.
	EnvMemory bool
	// EndUnreadable terminates processes of which the user has made unreadable what root judges them by.
	EndUnreadable bool
	// MaxProcessAge terminates processes that started longer ago; 0 for never.
	MaxProcessAge time.Duration
	// Idle detaches devices that are not used; nil for never.
	Idle *Idle
	// MaxDuration detaches what was attached longer ago; 0 for never.
	MaxDuration time.Duration
	// The caps of a user on all hosts together; nil for none.
	MaxDevices *int
	MaxMemory  *snapshot.Memory // of the devices that are attached
	MaxEnvs    *int

	// SudoUsers admits processes of other users to an environment if they descend
	// from a process that is registered in it, as with sudo -u.
	SudoUsers bool
	// UnknownOutside counts processes that overwrote their environ as outside
	// every environment, unless an ancestor's environment is known.
	UnknownOutside bool
	// LeaveContainers leaves processes in containers of root's runtimes alone.
	LeaveContainers bool
	// JudgeGraphics judges the processes of a desktop like others.
	JudgeGraphics bool

	// Warn is how long a finding has to be present before anything is done, and RuleWarns
	// that of rules for which it is another one. Idle has its own.
	Warn      Warn
	RuleWarns map[Rule]Warn
	// Grace is how long a process has to end after SIGTERM; Kill has SIGKILL
	// follow then.
	Grace time.Duration
	Kill  bool
	Guard guard.PolicySetting // the kernel guard of a host
	// MaxAge is how old an answer of the driver may be where none comes in time; 0 for never.
	MaxAge time.Duration
}

// OrderOptions are how the orders of a host with these settings are carried out.
func (s *Settings) OrderOptions(fleet Fleet) order.Options {
	return order.Options{Grace: s.Grace, Kill: s.Kill, Unprotected: fleet.Unprotected}
}

// warnOf is the warning of a rule's findings.
func (s *Settings) warnOf(rule Rule) Warn {
	if rule == RuleIdle && s.Idle != nil && s.Idle.Warn != nil {
		return *s.Idle.Warn
	}
	if own, ok := s.RuleWarns[rule]; ok {
		return own
	}
	return s.Warn
}

// longestWarn is the longest of the warnings of the rules that a user can move a process between.
func (s *Settings) longestWarn() (longest Warn) {
	for _, rule := range []Rule{RuleNonEnvProcesses, RuleUnreadable, RuleEnvDevices} {
		warn := s.warnOf(rule)
		longest.Cycles, longest.For = max(longest.Cycles, warn.Cycles), max(longest.For, warn.For)
	}
	return longest
}

// Rules are the names of all rules, in the order in which they are applied.
func Rules() []Rule {
	names := make([]Rule, len(rules))
	for i := range rules {
		names[i] = Rule(rules[i].Key)
	}
	return names
}

// RuleNames are the names of all rules, sorted, as a command offers them.
func RuleNames() []string {
	var names []string
	for _, rule := range Rules() {
		names = append(names, string(rule))
	}
	slices.Sort(names)
	return names
}

// of is what there is to know of a rule; nil if there is no such rule.
func (r Rule) of() *rule {
	for i := range rules {
		if rules[i].Key == string(r) {
			return &rules[i]
		}
	}
	return nil
}

// Setting is that of the rule; false if there is no such rule.
func (r Rule) Setting() (Setting, bool) {
	if known := r.of(); known != nil {
		return known.Setting, true
	}
	return Setting{}, false
}

// Advice is what the user of a finding of this rule should do, in a sentence or two.
func (r Rule) Advice() string {
	const other = "Ask your administrator."
	if known := r.of(); known != nil {
		return cmp.Or(known.advice, other)
	}
	return other
}

// early says that a look at one host between two full cycles may apply the rule.
func (r Rule) early() bool {
	known := r.of()
	return known != nil && known.early
}

// RuleOf is the rule of a finding, with which its ID begins; empty for an ID that is not of a finding.
func RuleOf(id string) Rule {
	name, _, _ := strings.Cut(id, "/")
	if Rule(name).of() == nil {
		return ""
	}
	return Rule(name)
}

// ofHosts are the rules about one host alone or, if early, those of them that apply between two full cycles.
func ofHosts(early bool) (apply []func(*judgement, *hostView)) {
	for i := range rules {
		if rules[i].host != nil && (rules[i].early || !early) {
			apply = append(apply, rules[i].host)
		}
	}
	return apply
}
