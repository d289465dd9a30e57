package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// evaluate reads the configuration for a host, and returns the lines it came from;
// its error is the *Error of the first line anywhere that cannot be honoured.
func (f *files) evaluate(q Lookup) (raw, []line, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused != nil {
		return nil, nil, f.refused
	}
	var lines []line // the first one of a keyword wins, except for keywords that may be repeated
	set := func(keyword, value string) {
		if value != "" {
			lines = append(lines, line{keyword: keyword, words: []string{value}})
		}
	}
	set("hostname", strings.ReplaceAll(q.HostName, "%", "%%"))
	set("user", q.User)
	if q.Port != 0 {
		set("port", fmt.Sprint(q.Port))
	}
	for _, l := range f.all {
		if l.isFor(q.Host) && l.counts(lines) {
			lines = append(lines, l)
		}
	}
	values := raw{}
	for _, l := range lines {
		values[l.keyword] = append(values[l.keyword], l.words...)
	}
	if name := q.target(values.first("hostname")); isUnusual(name) {
		return nil, nil, located(&Error{keyword: "hostname", Problem: "the address " + name + withoutSSH}, lines)
	}
	return values, lines, nil
}

func (l *line) isFor(host string) bool {
	return !slices.ContainsFunc(l.hosts, func(patterns []string) bool { return !MatchesAny(patterns, host) })
}

// counts says whether a line still adds a value to those before it.
func (l *line) counts(before []line) bool {
	h := honoured()[l.keyword]
	for _, known := range before {
		switch {
		case known.keyword == l.keyword && (h.arity != each || slices.Equal(known.words, l.words)):
			return false
		case known.keyword == "proxyjump" && !isNone(known.words[0]) &&
			l.keyword == "proxycommand", known.keyword == "proxycommand" && l.keyword == "proxyjump":
			return false // one replaces the other
		}
	}
	return true
}

// MatchesAny says whether a pattern of ssh_config or known_hosts matches and no
// negated one does. As in OpenSSH, `*` is any text, and `?` any one byte.
func MatchesAny(patterns []string, name string) bool {
	found := false
	for _, pattern := range patterns {
		plain, negated := strings.CutPrefix(pattern, "!")
		switch {
		case !text.MatchGlob([]byte(plain), []byte(name)):
		case negated:
			return false
		default:
			found = true
		}
	}
	return found
}

// usualSpelling is the usual spelling of an address, by which ssh looks it up in
// known_hosts: ::1 for 0:0:0:0:0:0:0:1. A name is returned as it is.
func usualSpelling(name string) string {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.String()
	}
	return name
}

var unusual = text.Pattern(`(?i)^(0x[\da-f]*|\d+)(\.(0x[\da-f]*|\d+))*$`)

// isUnusual reports whether it takes ssh to say which address is meant: 127.1, 0x7f000001, or a zone by its number.
func isUnusual(name string) bool {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.Zone() != "" && strings.Trim(a.Zone(), "0123456789") == ""
	}
	return unusual().MatchString(name)
}
