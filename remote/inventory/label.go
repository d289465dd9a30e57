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

// label is label:KEY for hosts with a label, or label:KEY=VALUE, where * in the value is any
// text and ? any character.
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

// matches says whether a host has the label. Keys and values are case-sensitive, as in
// policies.
func (l label) matches(h *remote.Host) bool {
	has, ok := h.Labels[l.key]
	return ok && (!l.hasValue || globMatches([]rune(l.value), []rune(has)))
}

// globMatches says whether a glob matches a whole text.
func globMatches(glob, text []rune) bool {
	at, star, tried := 0, -1, 0 // in the glob, its last star, and the end in the text of what that matches
	for i := 0; i < len(text); {
		switch {
		case at < len(glob) && glob[at] == '*':
			star, tried = at, i
			at++
		case at < len(glob) && (glob[at] == '?' || glob[at] == text[i]):
			at++
			i++
		case star >= 0:
			tried++
			at, i = star+1, tried
		default:
			return false
		}
	}
	return strings.Trim(string(glob[at:]), "*") == ""
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

// hint says which labels or which values there are.
func (l label) hint(values map[string][]string) string {
	if known, ok := values[l.key]; ok {
		slices.Sort(known)
		return text.Hint(l.value, known, fmt.Sprintf("the values of %s are %s", l.key, text.Shorten(strings.Join(known, ", "), 200)))
	}
	keys := slices.Sorted(maps.Keys(values))
	if len(keys) == 0 {
		return "add `labels:` to its hosts"
	}
	return text.Hint(l.key, keys, "the labels are "+text.Shorten(strings.Join(keys, ", "), 200))
}
