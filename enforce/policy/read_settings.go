package policy

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// Source is where a value comes from; zero for nowhere.
type Source struct {
	Place strictyaml.Place // in the file; zero for a built-in value
	By    string           // the part of the file or program, such as "defaults"
}

// String is the source in plain English, with file and line.
func (s Source) String() string {
	if s.Place.Line == 0 {
		return s.By
	}
	return s.By + ", " + s.Place.String()
}

// Settings are values of a policy that may differ by host, user and time.
type Settings struct {
	enforce.Settings
	// From is where each value comes from, by key. A setting without a Source is not set.
	From map[string]Source
}

// Set notes where a setting comes from.
func (s *Settings) Set(key string, from Source) {
	if s.From == nil {
		s.From = make(map[string]Source)
	}
	s.From[key] = from
}

func (s *Settings) has(key string) bool {
	_, set := s.From[key]
	return set
}

func (s *Settings) merge(from *Settings) {
	s.From = maps.Clone(s.From)
	for _, key := range keys() {
		if source, set := from.From[key.Key]; set {
			key.Copy(&s.Settings, &from.Settings)
			s.Set(key.Key, source)
		}
	}
}

// keys are in the order of explanations: rules' own warnings after that of all rules.
var keys = sync.OnceValue(func() []enforce.Setting {
	list := enforce.Keys()
	warn := slices.IndexFunc(list, func(s enforce.Setting) bool { return s.Key == "warn" })
	return slices.Insert(list, warn+1, enforce.RuleWarns()...)
})

func misplaced() strictyaml.Keys {
	list := strictyaml.Keys{}
	for _, key := range keys() {
		list[key.Key] = func(n *strictyaml.Node) { n.Failf("%s: write it under `defaults:`", key.Key) }
	}
	return list
}

// readSettings refuses settings that can't differ by what an override selects.
func (r *reader) readSettings(n *strictyaml.Node, s *Settings, selects enforce.Scope, by string) {
	read, ruleWarns := strictyaml.Keys{}, strictyaml.Keys{}
	for _, key := range keys() {
		name, list := key.Key, read
		if rule, own := strings.CutPrefix(key.Key, enforce.WarnOfRule); own {
			name, list = rule, ruleWarns
		}
		list[name] = func(n *strictyaml.Node) {
			switch {
			case selects&enforce.ByHost > key.Scope&enforce.ByHost:
				n.Failf("%s counts on all hosts together and cannot differ by host; select users, or move it to "+
					"`defaults:`", name)
			case selects&enforce.ByUser > key.Scope&enforce.ByUser:
				n.Failf("%s cannot differ by user; select hosts, or put the users under `exempt:`", name)
			}
			key.Read(&s.Settings, n) // in any case, for Schema
			s.Set(key.Key, Source{Place: n.Place(), By: by})
		}
	}
	ofAll := read["warn"]
	read["warn"] = func(n *strictyaml.Node) { readWarn(n, ofAll, ruleWarns) }
	hints := strictyaml.Keys{"extend": r.ignore("extend", useSchedules)}
	for what, amount := range map[string]string{
		"devices": "gpus: 4", "gpus": "gpus: 4", "memory": "memory: 80g", "envs": "environments: 4",
	} {
		key := "max-" + what + "-per-group"
		hints[key] = func(n *strictyaml.Node) {
			n.Failf("%s: write it as a cap that a group shares: caps: [{users: [\"@group\"], together: true, %s}]", key,
				amount)
		}
	}
	hints["max-gpus-per-user"] = func(n *strictyaml.Node) { n.Failf("max-gpus-per-user: write max-devices-per-user") }
	n.Map(read, hints)
}

func readWarn(n *strictyaml.Node, ofAll func(*strictyaml.Node), ruleWarns strictyaml.Keys) {
	rules, rest := n.Cut("rules")
	if rest != nil {
		ofAll(rest)
	}
	if rules != nil {
		rules.Map(ruleWarns, strictyaml.Keys{string(enforce.RuleIdle): func(n *strictyaml.Node) {
			n.Failf("the warning of idle is part of it: write idle: {after: 1h, warn: 1h}")
		}})
	}
}
