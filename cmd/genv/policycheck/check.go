// Package policycheck reads a policy with the flags that override it, and checks names in it: users without an account,
// and hosts and labels that aren't in the inventory. A misspelt name gets no rules.
//
//	warnings, notChecked := policycheck.Check(references, policycheck.Known{Hosts: hosts, Groups: groups})
//
// Package policy knows the syntax. Accounts are looked up with getent(1) in a bounded time; a failed look-up is
// reported as not checked, never as unknown.
package policycheck

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Known is what names may refer to.
type Known struct {
	Hosts    []remote.Host
	Groups   map[string][]string // of the inventory
	Accounts KnownNames
	// Models are the GPUs that a controller has seen, by host and model; nil if none is known. ModelsErr is why they
	// can't be read.
	Models    map[snapshot.Hostname]map[string]int
	ModelsErr error
}

// Warning is about an unknown name.
type Warning struct {
	Line   int `json:"line"`
	Column int `json:"column"`
	// Kind is user, group, host, label or model, if unknown; key or cap without effect; hint for what --strict doesn't
	// refuse.
	Kind    string `json:"kind"`
	Name    string `json:"name"` // of a label KEY=VALUE
	Message string `json:"message"`

	account string // how SplitAccounts names a user without an account here; empty for other warnings
}

// Check looks for unknown names. Each is a warning at its first place. notChecked says what could not be checked, and
// why.
func Check(references []policy.Reference, known Known) (warnings []Warning, notChecked []string) {
	unchecked := func(isUnknown bool, why string, kinds ...string) {
		named := func(r policy.Reference) bool { return slices.Contains(kinds, r.Kind) }
		if isUnknown && slices.ContainsFunc(references, named) {
			notChecked = append(notChecked, why)
		}
	}
	const noInventory = "s: no inventory was found; name one with -H hosts.yaml"
	unchecked(len(known.Hosts) == 0, policy.ToHost+noInventory, policy.ToHost)
	unchecked(len(known.Hosts) == 0, policy.ToLabel+noInventory, policy.ToLabel)
	unchecked(known.Accounts.Err != nil, fmt.Sprint("users: ", known.Accounts.Err), policy.ToUser, policy.ToUnixGroup)
	unseen := "models: no controller on this machine has saved which GPUs it saw (a dry run saves nothing)"
	if known.ModelsErr != nil {
		unseen = fmt.Sprintf("models: what a controller has seen can't be read: %v; run this as its account (sudo -u ACCOUNT)",
			known.ModelsErr)
	}
	unchecked(len(known.Models) == 0, unseen, policy.ToModel)
	seen := map[string]bool{} // names with a warning
	for i := range references {
		r := &references[i]
		message, name, account := known.check(r)
		if key := r.Kind + name; message != "" && !seen[key] {
			seen[key] = true
			warnings = append(warnings, Warning{r.Place.Line, r.Place.Column, r.Kind, name, message, account})
		}
	}
	return warnings, notChecked
}

// check returns the message about a name, empty for none; the name, with a label's value; and how a user without
// account is listed.
func (k *Known) check(r *policy.Reference) (message, name, account string) {
	switch name = r.Name; {
	case r.Kind == policy.ToUser && k.Accounts.Err == nil:
		message, account = k.user(name)
	case r.Kind == policy.ToUnixGroup && k.Accounts.Err == nil && !k.Accounts.UnixGroups[name]:
		message = fmt.Sprintf("this machine knows no Unix group %q; correct the name, or write \"@%s\" for a group "+
			"under `groups:`", name, name)
	case r.Kind == policy.ToModel && len(k.Models) > 0:
		message = k.model(name)
	case r.Kind == policy.ToHost && strings.HasPrefix(name, "@"): // File.UseHostGroups checks it
	case r.Kind == policy.ToHost && len(k.Hosts) > 0:
		message = k.host(name)
	case r.Kind == policy.ToLabel && len(k.Hosts) > 0:
		message, name = k.label(name, r.Value), name+"="+r.Value
	}
	return message, name, account
}

// user returns the message about a user, empty for none, and how it is listed without an account.
func (k *Known) user(name string) (message, account string) {
	a := &k.Accounts
	switch {
	case a.Users[name]:
		return "", ""
	case a.Groups[name]:
		return fmt.Sprintf("%q is a group of this machine, and not a user; list its users under `groups:`, and write "+
			"\"@%s\"", name, name), ""
	}
	hint := text.Hint(name, a.All, "")
	message = fmt.Sprintf("user %q has no account on this machine; %s", name, cmp.Or(hint, "the hosts may know it"))
	if hint != "" {
		return message, fmt.Sprintf("%s (%s)", name, hint)
	}
	return message, name
}

// SplitAccounts returns the other warnings, and one line about users without an account here, probable misspellings
// first. The hosts may know these users.
func SplitAccounts(warnings []Warning) (line string, others []Warning) {
	var near, far []string
	for _, w := range warnings {
		switch w.account {
		case "":
			others = append(others, w)
		case w.Name:
			far = append(far, w.Name)
		default:
			near = append(near, w.account)
		}
	}
	names := slices.Concat(near, far)
	if len(names) == 0 {
		return "", others
	}
	const longest = 300
	who := "1 user has"
	if len(names) > 1 {
		who = fmt.Sprintf("%d users have", len(names))
	}
	return fmt.Sprintf("%s no account on this machine: %s; the hosts may know them", who,
		text.Shorten(strings.Join(names, ", "), longest)), others
}

// host checks a pattern: at least one name must be known.
func (k *Known) host(name string) string {
	pattern, err := text.ParseHosts(name)
	if err != nil || slices.ContainsFunc(k.Hosts, func(h remote.Host) bool { return pattern.Matches(h.Name) }) {
		return ""
	}
	if _, isGroup := k.Groups[name]; isGroup {
		return fmt.Sprintf("%q is a host group of the inventory, and not a host; a policy selects by names or `labels:`",
			name)
	}
	names := make([]string, len(k.Hosts))
	for i := range k.Hosts {
		names[i] = k.Hosts[i].Name
	}
	if pattern.Count() > 1 {
		return fmt.Sprintf("none of the hosts %s is in the inventory; %s", name,
			text.Hint(pattern.Expand()[0], names, "correct the name, or add them there"))
	}
	return fmt.Sprintf("host %q is not in the inventory; %s", name,
		text.Hint(name, names, "correct the name, or add it there"))
}

func (k *Known) label(key, value string) string {
	keys, values := map[string]bool{}, map[string]bool{}
	for i := range k.Hosts {
		for name, v := range k.Hosts[i].Labels {
			keys[name] = true
			if name == key {
				values[v] = true
			}
		}
	}
	switch {
	case values[value]:
		return ""
	case len(keys) == 0:
		return fmt.Sprintf("no host of the inventory has the label %q: its hosts have no labels; add `labels:` there",
			key)
	case !keys[key]:
		return fmt.Sprintf("no host of the inventory has the label %q; %s", key,
			text.Hint(key, slices.Sorted(maps.Keys(keys)), "the labels are "+list(keys)))
	}
	return fmt.Sprintf("no host of the inventory has the label %s=%s; %s", key, value,
		text.Hint(value, slices.Sorted(maps.Keys(values)), "the values of "+key+" are "+list(values)))
}

func (k *Known) model(glob string) string {
	models := map[string]bool{}
	for _, byModel := range k.Models {
		for model := range byModel {
			if policy.MatchModel(glob, model) {
				return ""
			}
			models[cmp.Or(model, "unknown")] = true
		}
	}
	return fmt.Sprintf("no GPU that the controller has seen is a %q; the models are %s", glob, list(models))
}

func list(words map[string]bool) string {
	const longest = 200
	return text.Shorten(strings.Join(slices.Sorted(maps.Keys(words)), ", "), longest)
}
