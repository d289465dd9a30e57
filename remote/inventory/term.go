package inventory

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// terms select the hosts of include (empty: all) that are in each of within, and in none of exclude.
type terms struct{ include, within, exclude []word }

const (
	notSign = "!" // item prefix: not these hosts
	andSign = "&" // item prefix: only these hosts
)

func (w word) isNarrowing() bool {
	return strings.HasPrefix(w.text, notSign) || strings.HasPrefix(w.text, andSign)
}

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

func (f *fleet) expand(w word, others []string) ([]remote.Host, error) {
	var like remote.Host // with user and port as written
	var names []string
	var err error
	group, isGroup := strings.CutPrefix(w.text, "@")
	label, isLabel := labelOf(w.text)
	switch {
	case isGroup:
		if names, err = f.members(group); err != nil {
			err = fmt.Errorf("host group @%s: %w", group, err)
		}
	case isLabel:
		if names, err = f.labelled(label); err != nil {
			err = fmt.Errorf("%s: %w", w.text, err)
		}
	default:
		like, err = parseDestination(w.text)
		if err == nil && text.IsHostGlob(like.Name) {
			names, err = f.matching(like.Name, others)
		} else if err == nil {
			var pattern text.HostPattern
			pattern, err = text.ParseHosts(like.Name)
			names = pattern.Expand()
		}
	}
	hosts := make([]remote.Host, len(names))
	for i, name := range names {
		hosts[i] = like
		hosts[i].Name = name
	}
	return hosts, err
}

func (f *fleet) matching(name string, others []string) ([]string, error) {
	matches, err := text.ParseHostGlob(name)
	if err != nil {
		return nil, err
	}
	if len(f.files)+len(others) == 0 {
		return nil, fmt.Errorf("%s: %w", name, errNoFleet)
	}
	var found []string
	for _, known := range slices.Concat(names(f.hosts), others) {
		if matches(known) {
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

// keysOf are a word's hosts, folded. Unknown ones are an error, to catch typing errors.
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

// labelOf returns KEY or KEY=VALUE of label:…, but label:22 is port 22 of such a host.
func labelOf(item string) (label string, ok bool) {
	label, ok = strings.CutPrefix(item, "label:")
	_, err := parsePort(label)
	return label, ok && err != nil
}

// labelled are the hosts with a label, at least one. Case matters; * and ? in a value are wildcards.
func (f *fleet) labelled(label string) ([]string, error) {
	key, value, hasValue := strings.Cut(label, "=")
	if key == "" {
		return nil, errors.New("the label's name is missing; write it as label:gpu=h100, or label:gpu")
	}
	if len(f.files) == 0 {
		return nil, errNoFleet
	}
	var found []string
	known := map[string]map[string]bool{} // all hosts' values of each label
	for i := range f.hosts {
		h := &f.hosts[i]
		if has, ok := h.Labels[key]; ok && (!hasValue || text.MatchGlob([]rune(value), []rune(has))) {
			found = append(found, h.Name)
		}
		for key, value := range h.Labels {
			if known[key] == nil {
				known[key] = map[string]bool{}
			}
			known[key][value] = true
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	what, word, choices := "the labels", key, slices.Sorted(maps.Keys(known))
	if len(choices) == 0 {
		return nil, fmt.Errorf("no host in %s has it; add `labels:` to its hosts", f.in())
	}
	if known[key] != nil {
		what, word, choices = "the values of "+key, value, slices.Sorted(maps.Keys(known[key]))
	}
	return nil, fmt.Errorf("no host in %s has it; %s", f.in(),
		text.Hint(word, choices, what+" are "+text.Shorten(strings.Join(choices, ", "), 200)))
}

// parseDestination reads [user@]name[:port], with ranges or wildcards in the name.
func parseDestination(word string) (h remote.Host, err error) {
	name := word
	switch at := strings.LastIndexByte(word, '@'); {
	case at == 0:
		return h, fmt.Errorf("%q has no user before the @; write it as user@host, or @group for a host group", word)
	case at > 0 && at == len(word)-1:
		return h, fmt.Errorf("%q has no host after the @; write it as user@host", word)
	case at > 0: // the last @, as in ssh: a user may be ann@corp.example
		if err := text.CheckUsername(word[:at]); err != nil {
			return h, fmt.Errorf("%q: %w", word, err)
		}
		h.User, name = word[:at], word[at+1:]
	}
	if h.Name, h.Port, err = splitPort(name); err != nil {
		return h, fmt.Errorf("%q: %w", word, err)
	}
	return h, nil
}

// splitPort separates the port. Brackets around a colon hold an IPv6 address.
func splitPort(text string) (host string, port int, err error) {
	if inside, rest, closed := strings.Cut(text, "]"); closed && strings.HasPrefix(inside, "[") &&
		strings.Contains(inside, ":") {
		return splitBracketed(inside[1:], rest)
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return text, 0, nil
	}
	host, digits, ok := strings.Cut(text, ":")
	if !ok {
		return text, 0, nil
	}
	if strings.Contains(digits, ":") {
		return "", 0, errors.New("an IPv6 address with a port must be in brackets; write it as [::1]:22")
	}
	port, err = parsePort(digits)
	return host, port, err
}

func splitBracketed(address, rest string) (host string, port int, err error) {
	if _, err := netip.ParseAddr(address); err != nil {
		return "", 0, fmt.Errorf("[%s] is not an IPv6 address; write it as [::1]:22", address)
	}
	if rest == "" {
		return address, 0, nil
	}
	digits, ok := strings.CutPrefix(rest, ":")
	if !ok {
		return "", 0, errors.New("an IPv6 address in brackets can only be followed by a port; write it as [::1]:22")
	}
	port, err = parsePort(digits)
	return address, port, err
}

func parsePort(digits string) (int, error) {
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("%q is not a port; write a number from 1 to 65535", digits)
	}
	return int(port), nil
}
