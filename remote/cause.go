package remote

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Cause is why one or more hosts failed.
type Cause struct {
	Class Class
	// Error is the text of the hosts' errors, shortened, with "…" for what differs between them.
	Error string
	Hosts []string // in the order of the failures
	// NextSteps are those of the hosts, each once.
	NextSteps []string
}

// Causes puts failures together that have the same cause: errors of a class that differ in
// nothing but the host's own name, address, port, key, PIDs and durations. The class with
// the most hosts comes first, and in it the cause with the most hosts.
func Causes(failures []Failure) []Cause {
	type group struct {
		Cause
		rest   string     // of the text, between the pieces
		pieces [][]string // of each host
	}
	groups := make(map[string]*group)
	var order []*group
	perClass := make(map[Class]int)
	for _, f := range failures {
		rest, pieces := varying(f.Error, f.Host)
		key := string(f.Class) + "\x00" + rest
		g := groups[key]
		if g == nil {
			g = &group{Cause: Cause{Class: f.Class, Error: f.Error}, rest: rest}
			groups[key], order = g, append(order, g)
		}
		perClass[f.Class]++
		g.Hosts, g.pieces = append(g.Hosts, f.Host), append(g.pieces, pieces)
		if !slices.Contains(g.NextSteps, f.NextStep) {
			g.NextSteps = append(g.NextSteps, f.NextStep)
		}
	}
	causes := make([]Cause, len(order))
	for i, g := range order {
		if len(g.Hosts) > 1 {
			g.Error = common(g.rest, g.pieces)
		}
		if where, why, found := strings.Cut(g.Error, ": dial tcp "); found &&
			strings.HasPrefix(where, "no connection to ") {
			_, why, _ = strings.Cut(why, ": ") // it says the same address again
			g.Error = where + ": " + strings.TrimPrefix(why, "connect: ")
		}
		causes[i] = g.Cause
	}
	slices.SortStableFunc(causes, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(perClass[b.Class], perClass[a.Class]), cmp.Compare(a.Class, b.Class),
			cmp.Compare(len(b.Hosts), len(a.Hosts)))
	})
	return causes
}

// mark replaces a part of an error that may differ between hosts.
const mark = "\x00"

// maxCompared is how many bytes of an error decide about its cause.
const maxCompared = 2048

// ownPieces matches what is a host's own, whatever its name: addresses, ports, PIDs and durations. The fingerprint of a
// key isn't taken out, since people have to check it.
var ownPieces = text.Pattern(strings.Join([]string{
	`\b\d{1,3}(?:\.\d{1,3}){3}\b`,
	`\[[0-9a-fA-F:.]+(?:%\w+)?\]`,
	`\b[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){2,7}`,
	`\b[\w.-]+:\d{1,5}\b`,
	`:\d{1,5}\b`,
	`(?i:\b(?:port|pid|process) \d+)`,
	`\b\d+(?:\.\d+)?(?:ns|µs|us|ms|s|m|h|d)(?:\d+(?:\.\d+)?(?:ms|s|m|h))*\b`,
}, "|"))

// varying takes out of an error what is the host's own.
func varying(text, host string) (rest string, pieces []string) {
	text = strings.ReplaceAll(text, mark, "?")
	tail := ""
	if len(text) > maxCompared {
		text, tail = text[:maxCompared], text[maxCompared:]
	}
	var b strings.Builder
	take := func(text string, own [][]int) {
		at := 0
		for _, m := range own {
			b.WriteString(text[at:m[0]] + mark)
			pieces = append(pieces, text[m[0]:m[1]])
			at = m[1]
		}
		b.WriteString(text[at:])
	}
	at := 0
	for _, m := range word().FindAllStringIndex(text, -1) {
		if names(text[m[0]:m[1]], host) {
			take(text[at:m[0]], ownPieces().FindAllStringIndex(text[at:m[0]], -1))
			take(text[m[0]:m[1]], [][]int{{0, m[1] - m[0]}})
			at = m[1]
		}
	}
	take(text[at:], ownPieces().FindAllStringIndex(text[at:], -1))
	return b.String() + tail, pieces
}

var word = text.Pattern(`[A-Za-z0-9_.-]+`)

// names says whether a word is the name of a host: with its domain, or without.
func names(word, host string) bool {
	short, _, _ := strings.Cut(host, ".")
	first, _, _ := strings.Cut(word, ".")
	return short != "" && strings.EqualFold(first, short)
}

// common is the text of a cause: a piece is kept if all hosts have the same.
func common(rest string, pieces [][]string) string {
	parts := strings.Split(rest, mark)
	var b strings.Builder
	for i, part := range parts {
		b.WriteString(part)
		if i == len(parts)-1 {
			break
		}
		piece := pieces[0][i]
		for _, other := range pieces[1:] {
			if other[i] != piece {
				piece = "…"
				break
			}
		}
		b.WriteString(piece)
	}
	return withoutPlace(b.String())
}

// withoutPlace leaves out to where there is no connection, if that differs: the names of the hosts are shown anyway.
func withoutPlace(failure string) string {
	at := strings.LastIndex(failure, "…")
	if at < 0 || !strings.HasPrefix(failure, "no connection to ") {
		return failure
	}
	_, why, found := strings.Cut(failure[at:], ": ")
	if !found || why == "" {
		return failure
	}
	return text.OneLine(strings.TrimPrefix(why, "connect: "))
}
