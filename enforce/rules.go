package enforce

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// Rule names a rule by its key in a policy. The texts appear in JSON.
type Rule string

// rule defines a rule. A new one needs a value in Settings and an entry in a list.
type rule struct {
	// Setting switches it on. Its Key is the rule's name, and its Scope says whom and what can be exempted.
	Setting
	advice    string                           // for the user of a finding, a sentence or two
	adviceRun string                           // for genv run, if different: there is no shell
	line      func(Finding) string             // the finding in plain English
	limit     func(*Settings) (CapLimit, bool) // false for a user without a cap
	counts    CapKind                          // by a cap
	isMovable bool                             // users can move a process between such rules
}

// rules are in the order of their application: each sees what ends because of earlier ones.
var rules = slices.Concat(processRules, environmentRules, capRules)

// Rules are the names of all rules, in the order of their application.
func Rules() []Rule {
	names := make([]Rule, len(rules))
	for i := range rules {
		names[i] = Rule(rules[i].Key)
	}
	return names
}

// RuleNames are the names of all rules, sorted.
func RuleNames() []string {
	var names []string
	for _, rule := range Rules() {
		names = append(names, string(rule))
	}
	slices.Sort(names)
	return names
}

// IsMovable reports whether users can move a process from this rule to another one.
func (r Rule) IsMovable() bool { return r.of().isMovable }

// of returns the zero rule for an unknown one.
func (r Rule) of() *rule {
	if known := snapshot.Find(rules, func(known *rule) bool { return known.Key == string(r) }); known != nil {
		return known
	}
	return &rule{}
}

// Setting returns the rule's setting; false for an unknown rule.
func (r Rule) Setting() (Setting, bool) {
	known := r.of()
	return known.Setting, known.Key != ""
}

// Advice is what the user of a finding of this rule should do.
func (r Rule) Advice() string {
	return cmp.Or(r.of().advice, "Ask your administrator.")
}

// AdviceAfter is Advice for people who lost a process. An empty eid means outside of environments.
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

// RuleOf is the rule of a finding, from the beginning of its ID; empty if unknown.
func RuleOf(id string) Rule {
	name, _, _ := strings.Cut(id, "/")
	return Rule(Rule(name).of().Key)
}
