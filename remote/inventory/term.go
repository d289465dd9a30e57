package inventory

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// terms are the words of a selection by what they do. It is all hosts of include, or of the inventory if there are
// none, that are in each of within and in none of exclude, whatever their order.
type terms struct{ include, within, exclude []word }

const (
	notSign = "!" // before an item: not these hosts
	andSign = "&" // before an item: only these hosts
)

// isNarrowing says whether an item excludes hosts, or selects among the others.
func (w word) isNarrowing() bool {
	return strings.HasPrefix(w.text, notSign) || strings.HasPrefix(w.text, andSign)
}

// sortTerms sorts the words of -H and those of -x.
func sortTerms(words, excluded []word) (terms, error) {
	var t terms
	for _, w := range words {
		if rest, ok := strings.CutPrefix(w.text, notSign); ok {
			t.exclude = append(t.exclude, word{strings.TrimSpace(rest), w.place + " " + notSign})
		} else if rest, ok := strings.CutPrefix(w.text, andSign); ok {
			t.within = append(t.within, word{strings.TrimSpace(rest), w.place + " " + andSign})
		} else {
			t.include = append(t.include, w)
		}
	}
	for _, w := range slices.Concat(t.within, t.exclude, excluded) {
		if w.isNarrowing() {
			return terms{}, usagef("%s: %s: write the hosts alone, without another sign before them", w.place, w.text)
		}
	}
	t.exclude = append(t.exclude, excluded...)
	return t, nil
}

// expand is the hosts of a group, a label, a glob or a destination. Globs are looked up
// among the hosts of the fleet and the others that are given.
func (f *fleet) expand(w word, others []string) ([]remote.Host, error) {
	if group, ok := strings.CutPrefix(w.text, "@"); ok {
		members, err := f.members(group)
		if err != nil {
			return nil, fmt.Errorf("host group @%s: %w", group, err)
		}
		return hostsNamed(members, destination{}), nil
	}
	if l, ok := parseLabel(w.text); ok {
		labelled, err := f.labelled(l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.text, err)
		}
		return hostsNamed(labelled, destination{}), nil
	}
	t, err := splitDestination(w.text)
	if err != nil {
		return nil, err
	}
	if text.IsHostGlob(t.name) {
		members, err := f.matching(t.name, others)
		return hostsNamed(members, t), err
	}
	if t.pattern, err = text.ParseHosts(t.name); err != nil {
		return nil, err
	}
	return hostsNamed(t.pattern.Expand(), t), nil
}

// hostsNamed are hosts with the user and port of a destination.
func hostsNamed(names []string, t destination) []remote.Host {
	hosts := make([]remote.Host, len(names))
	for i, name := range names {
		hosts[i] = remote.Host{Name: name, User: t.user, Port: t.port}
	}
	return hosts
}

// matching are the hosts that a glob matches, at least one.
func (f *fleet) matching(name string, others []string) ([]string, error) {
	g, err := text.ParseHostGlob(name)
	if err != nil {
		return nil, err
	}
	if len(f.files)+len(others) == 0 {
		return nil, fmt.Errorf("%s: %w", name, errNoFleet)
	}
	var found []string
	for _, known := range slices.Concat(names(f.hosts), others) {
		if g.Matches(known) {
			found = append(found, known)
		}
	}
	if len(found) == 0 && len(f.files) == 0 {
		return nil, fmt.Errorf("%s matches none of the selected hosts; correct it, or leave it out", name)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s matches no host in %s; correct it, or add the hosts there", name, f.in())
	}
	return found, nil
}

// errNoFleet is why a pattern can't be looked up.
var errNoFleet = errors.New("no hosts.yaml was found to look it up in; name one with --hostfile")

func (s *selected) narrow(t terms, f *fleet) error {
	for _, w := range t.within {
		keys, err := s.keysOf(w, f)
		if err != nil {
			return err
		}
		s.hosts = slices.DeleteFunc(s.hosts, func(h remote.Host) bool { return !keys[text.FoldHost(h.Name)] })
		if len(s.hosts) == 0 {
			return usagef("%s: none of the other hosts is in %s; correct it, or leave it out", w.place, w.text)
		}
	}
	excluded := map[string]bool{}
	for _, w := range t.exclude {
		keys, err := s.keysOf(w, f)
		if err != nil {
			return err
		}
		for key := range keys {
			excluded[key] = true
		}
	}
	s.hosts = slices.DeleteFunc(s.hosts, func(h remote.Host) bool { return excluded[text.FoldHost(h.Name)] })
	if len(s.hosts) == 0 {
		return usagef("%s: no host is left; exclude fewer", t.exclude[0].place)
	}
	return nil
}

// keysOf are the folded names of a word's hosts. One that is not a host of the selection or
// the inventory is an error: it may be a misspelt name.
func (s *selected) keysOf(w word, f *fleet) (map[string]bool, error) {
	hosts, err := f.expand(w, names(s.hosts))
	if err != nil {
		return nil, usagef("%s: %w", w.place, err)
	}
	known, keys := strings.HasPrefix(w.text, "@"), map[string]bool{}
	for _, h := range hosts {
		key := text.FoldHost(h.Name)
		_, isSelected := s.index[key]
		_, inFleet := f.index[key]
		known = known || isSelected || inFleet
		keys[key] = true
	}
	if !known {
		return nil, usagef("%s: %s is not one of the selected hosts; %s", w.place, w.text,
			text.Hint(w.text, names(s.hosts), "correct it, or leave it out"))
	}
	return keys, nil
}

// label is label:KEY for hosts with a label, or label:KEY=VALUE, where * in the value is any text and ? any character.
type label struct {
	key, value string
	hasValue   bool
}

// parseLabel says whether an item is a label. label:22 is port 22 of a host with this name.
func parseLabel(item string) (label, bool) {
	rest, ok := strings.CutPrefix(item, "label:")
	if _, err := parsePort(rest); !ok || err == nil {
		return label{}, false
	}
	var l label
	l.key, l.value, l.hasValue = strings.Cut(rest, "=")
	return l, true
}

// matches says whether a host has the label. Keys and values are case-sensitive, as in policies.
func (l label) matches(h *remote.Host) bool {
	has, ok := h.Labels[l.key]
	return ok && (!l.hasValue || text.MatchGlob([]rune(l.value), []rune(has)))
}

// labelled are the names of the hosts with a label, at least one.
func (f *fleet) labelled(l label) ([]string, error) {
	if l.key == "" {
		return nil, errors.New("the label's name is missing; write it as label:gpu=h100, or label:gpu")
	}
	if len(f.files) == 0 {
		return nil, errNoFleet
	}
	var found []string
	values := map[string][]string{} // by label, of all hosts
	for i := range f.hosts {
		h := &f.hosts[i]
		if l.matches(h) {
			found = append(found, h.Name)
		}
		for key, value := range h.Labels {
			if !slices.Contains(values[key], value) {
				values[key] = append(values[key], value)
			}
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, fmt.Errorf("no host in %s has it; %s", f.in(), l.hint(values))
}

func (l label) hint(values map[string][]string) string {
	if known, ok := values[l.key]; ok {
		slices.Sort(known)
		return text.Hint(l.value, known, fmt.Sprintf("the values of %s are %s", l.key,
			text.Shorten(strings.Join(known, ", "), 200)))
	}
	keys := slices.Sorted(maps.Keys(values))
	if len(keys) == 0 {
		return "add `labels:` to its hosts"
	}
	return text.Hint(l.key, keys, "the labels are "+text.Shorten(strings.Join(keys, ", "), 200))
}
