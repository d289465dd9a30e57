package config

import (
	"fmt"
	"slices"
	"strings"
)

// selection are the lines that apply to one host, in the order in which ssh reads them.
// The first line of a keyword wins, except for keywords that may be repeated.
type selection struct {
	host  string // what Host patterns are matched against
	lines []line
}

// evaluate reads the configuration for a host, and returns the lines it came from;
// its error is the *Error of the first line anywhere that cannot be honoured.
func (f *files) evaluate(q Query) (raw, []line, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused != nil {
		return nil, nil, f.refused
	}
	s := &selection{host: q.Host}
	s.set("hostname", strings.ReplaceAll(q.HostName, "%", "%%"))
	s.set("user", q.User)
	if q.Port != 0 {
		s.set("port", fmt.Sprint(q.Port))
	}
	for _, blocks := range f.tree {
		s.file(blocks)
	}
	values := raw{}
	for _, l := range s.lines {
		values[l.keyword] = append(values[l.keyword], l.words...)
	}
	if name := q.target(values.first("hostname")); isUnusual(name) {
		return nil, nil, located(&Error{keyword: "hostname", Problem: "the address " + name + withoutSSH}, s.lines)
	}
	return values, s.lines, nil
}

// set selects what the query sets, before any file.
func (s *selection) set(keyword, value string) {
	if value != "" {
		s.lines = append(s.lines, line{keyword: keyword, words: []string{value}})
	}
}

func (s *selection) file(blocks []block) {
	for _, b := range blocks {
		if !MatchesAny(b.patterns, s.host) {
			continue
		}
		for _, l := range b.lines {
			for _, included := range l.included {
				s.file(included)
			}
			if l.keyword != included && s.counts(l) {
				s.lines = append(s.lines, l)
			}
		}
	}
}

// counts says whether a line still adds a value.
func (s *selection) counts(l line) bool {
	h := honoured()[l.keyword]
	for _, known := range s.lines {
		switch {
		case known.keyword == l.keyword && (h.arity != each || slices.Equal(known.words, l.words)):
			return false
		case known.keyword == "proxyjump" && !isNone(known.words[0]) && l.keyword == "proxycommand", known.keyword == "proxycommand" && l.keyword == "proxyjump":
			return false // one replaces the other
		}
	}
	return true
}
