package config

import (
	"fmt"
	"slices"
	"strings"
)

// walk selects the lines that apply to one host, in the order in which ssh reads
// them. The first line of a keyword wins, except for keywords that may be repeated.
type walk struct {
	query    Query
	who      identity
	host     string // what Host patterns are matched against
	final    bool   // the second reading, which `Match final` asks for
	selected []line

	wantsFinal bool
}

// evaluate reads the configuration for a host, and returns the lines it came from;
// its error is the *Error of the first line anywhere that cannot be honoured.
func (f *files) evaluate(q Query) (raw, []line, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused != nil {
		return nil, nil, f.refused
	}
	w := &walk{query: q, who: f.who, host: q.Host}
	w.preset()
	w.all(f.tree)
	if w.wantsFinal {
		w.final = true
		w.host = w.target()
		if w.first("hostname") == "" { // the second reading does not rename the host
			w.selected = append(w.selected, line{keyword: "hostname", words: []string{strings.ReplaceAll(w.host, "%", "%%")}})
		}
		w.all(f.tree)
	}
	values, err := f.decode(w.selected)
	if err == nil {
		err = f.environmentSet(w.selected)
	}
	return values, w.selected, err
}

// preset selects what the query sets, before any file.
func (w *walk) preset() {
	add := func(keyword, value string) {
		if value != "" {
			w.selected = append(w.selected, line{keyword: keyword, words: []string{value}})
		}
	}
	add("hostname", strings.ReplaceAll(w.query.HostName, "%", "%%"))
	add("user", w.query.User)
	if w.query.Port != 0 {
		add("port", fmt.Sprint(w.query.Port))
	}
}

func (w *walk) all(tree [][]line) {
	for _, lines := range tree {
		w.file(lines, true)
	}
}

// file goes through a file. With may false, for an Include in a block that doesn't
// apply, no line is selected.
func (w *walk) file(lines []line, may bool) {
	active := may
	for _, l := range lines {
		switch l.keyword {
		case "host":
			active = may && MatchesAny(l.words, w.host)
		case "match":
			active = w.holds(l.words) && may
		case "include":
			for _, included := range l.included {
				w.file(included, active)
			}
		default:
			if active && w.counts(l) {
				w.selected = append(w.selected, l)
			}
		}
	}
}

// counts says whether a line still adds a value.
func (w *walk) counts(l line) bool {
	h, ok := honoured()[l.keyword]
	if !ok || isUnset(l) {
		return false
	}
	for _, s := range w.selected {
		switch {
		case s.keyword == l.keyword && (h.arity != each || slices.Equal(s.words, l.words)):
			return false
		case s.keyword == "proxyjump" && !isNone(s.words[0]) && l.keyword == "proxycommand", s.keyword == "proxycommand" && l.keyword == "proxyjump":
			return false // one replaces the other
		}
	}
	return true
}

func (w *walk) first(keyword string) string {
	for _, s := range w.selected {
		if s.keyword == keyword {
			return s.words[0]
		}
	}
	return ""
}

// target is the host's name so far, after HostName; in the second reading as ssh
// connects to it.
func (w *walk) target() string {
	name := w.query.target(w.first("hostname"))
	if w.final {
		name = usualSpelling(strings.ToLower(name))
	}
	return name
}

// isUnset is a time of "none", after which a later line may still set it.
func isUnset(l line) bool {
	return isNone(l.words[0]) && (l.keyword == "connecttimeout" || l.keyword == "serveraliveinterval")
}
