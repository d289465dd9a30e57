package enforce

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// Rule names a rule as its key in a policy does. The texts appear in JSON.
type Rule string

// rule is all that there is to know of a rule. A new one has its value in Settings, and is in a list.
type rule struct {
	// Setting switches it on; its Key is the rule's name, and its Scope says whom and what can be exempted.
	Setting
	advice    string                           // to the user of a finding, in a sentence or two
	adviceRun string                           // the same after genv run, where that differs: there is no shell
	line      func(Finding) string             // the finding in plain English
	limit     func(*Settings) (CapLimit, bool) // of a cap; false for a user without one
	counts    CapKind                          // what the cap counts
	isMovable bool                             // users can move a process from it to another such rule
}

// rules are all rules, in the order in which they are applied: each sees what ends because of those before it.
var rules = slices.Concat(processRules, environmentRules, capRules)

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

// IsMovable reports whether a user can move a process from this rule to another one.
func (r Rule) IsMovable() bool { return cmp.Or(r.of(), &rule{}).isMovable }

func (r Rule) of() *rule {
	return snapshot.Find(rules, func(known *rule) bool { return known.Key == string(r) })
}

// Setting is that of the rule; false for an unknown one.
func (r Rule) Setting() (Setting, bool) {
	if known := r.of(); known != nil {
		return known.Setting, true
	}
	return Setting{}, false
}

// Advice is what the user of a finding of this rule should do, in a sentence or two.
func (r Rule) Advice() string {
	return cmp.Or(cmp.Or(r.of(), &rule{}).advice, "Ask your administrator.")
}

// AdviceAfter is Advice for people who lost a process, in an environment or in none.
func (r Rule) AdviceAfter(eid snapshot.EnvID) string {
	advice := r.Advice()
	switch {
	case r == RuleIdle:
		return adviceIdleEnded
	case advice == adviceGiveBack && eid == "":
		return adviceEndJobs + "."
	}
	return advice
}

// RuleOf is the rule of a finding, with which its ID begins; empty for another ID.
func RuleOf(id string) Rule {
	name, _, _ := strings.Cut(id, "/")
	if Rule(name).of() == nil {
		return ""
	}
	return Rule(name)
}
