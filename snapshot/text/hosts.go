package text

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// MaxHosts limits the names that a host pattern may match.
const MaxHosts = 100_000

// HostPattern is a host name with any number of ranges:
//
//	gpu-[01-16].lab      16 names, padded as the range's first number is
//	node[1,3,5-8]        six names
//	rack[1-2]-gpu[1-4]   eight names, the last range running fastest
//
// Names are compared without regard to case, as in DNS (RFC 4343). The zero HostPattern matches none.
type HostPattern struct {
	text  string
	parts []hostPart
	count int
}

type hostPart struct {
	literal string
	ranges  []numberRange // nil for a literal
}

// numberRange has the numbers from low to high, padded with zeros to width.
type numberRange struct{ low, high, width int }

func (r numberRange) count() int { return r.high - r.low + 1 }

func (r numberRange) number(i int) string { return fmt.Sprintf("%0*d", r.width, r.low+i) }

// contains also compares the padding.
func (r numberRange) contains(digits string) bool {
	n, err := strconv.Atoi(digits)
	return err == nil && n >= r.low && n <= r.high && r.number(n-r.low) == digits
}

func (p HostPattern) String() string { return p.text }

// Count is the number of names, at most MaxHosts. A number that is listed twice counts twice.
func (p HostPattern) Count() int { return p.count }

// Expand lists the names in order.
func (p HostPattern) Expand() []string {
	if p.count == 0 {
		return nil
	}
	names := []string{""}
	for _, part := range p.parts {
		endings := part.expand()
		longer := make([]string, 0, len(names)*len(endings))
		for _, name := range names {
			for _, ending := range endings {
				longer = append(longer, name+ending)
			}
		}
		names = longer
	}
	return names
}

func (p hostPart) expand() (numbers []string) {
	if p.ranges == nil {
		return []string{p.literal}
	}
	for _, r := range p.ranges {
		for i := range r.count() {
			numbers = append(numbers, r.number(i))
		}
	}
	return numbers
}

// Matches says whether name is one of the pattern's.
func (p HostPattern) Matches(name string) bool {
	name = FoldHost(name)
	if len(p.parts) == 1 && p.parts[0].ranges == nil { // most patterns are one name
		return name == FoldHost(p.parts[0].literal)
	}
	return p.count > 0 && (matchParts(p.parts, name) || matchParts(p.parts, name+"."))
}

// matchParts matches a whole name in time proportional to both lengths, even with many stars.
func matchParts(parts []hostPart, name string) bool {
	at := make([]bool, len(name)+1) // where the parts so far may end
	at[0] = true
	for _, part := range parts {
		next := make([]bool, len(at))
		for i, reached := range at {
			if reached {
				part.reach(name, i, next)
			}
		}
		at = next
	}
	return at[len(name)]
}

// FoldHost normalises a host name for comparison: lower case, without a dot at the end.
func FoldHost(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// SplitHosts splits a list at commas outside brackets, and trims each item.
func SplitHosts(list string) []string {
	var items []string
	depth, start := 0, 0
	for i, r := range list {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth = max(0, depth-1)
		case r == ',' && depth == 0:
			items = append(items, strings.TrimSpace(list[start:i]))
			start = i + 1
		}
	}
	return append(items, strings.TrimSpace(list[start:]))
}

// MatchGlob says whether a glob matches a whole text: * is any text and ? any character.
func MatchGlob[C byte | rune](glob, text []C) bool {
	at, star, tried := 0, -1, 0 // in the glob; its last star; the end of the star's match in text
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
	return !slices.ContainsFunc(glob[at:], func(c C) bool { return c != '*' })
}

const wildcards = "*?"

// IsHostGlob says whether a host name needs ParseHostGlob.
func IsHostGlob(name string) bool { return strings.ContainsAny(name, wildcards) }

// ParseHostGlob parses a HostPattern in which * is any text and ? any character: rack[1-2]-* begins with rack1- or
// rack2-. The error is one line that says what to write instead.
func ParseHostGlob(text string) (matches func(name string) bool, err error) {
	if text != "" && text[0] == '-' {
		return nil, fmt.Errorf("%q: a host name must begin with a letter or a digit", text)
	}
	if len(text) > maxHostName {
		return nil, fmt.Errorf("%.20q…: a host name has at most %d characters", text, maxHostName)
	}
	parts, err := parseHostParts(strings.TrimSuffix(text, "."), "["+wildcards)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return func(name string) bool { return matchParts(parts, FoldHost(name)) }, nil
}

func (p hostPart) reach(name string, from int, ends []bool) {
	rest := name[from:]
	switch {
	case p.ranges != nil:
		for n := 1; n <= min(len(rest), maxDigits) && isNumber(rest[:n]); n++ {
			for _, r := range p.ranges {
				ends[from+n] = ends[from+n] || r.contains(rest[:n])
			}
		}
	case p.literal == "*":
		for i := from; i < len(ends) && (i == from || !ends[i]); i++ { // all after a marked one are marked
			ends[i] = true
		}
	case p.literal == "?":
		if rest != "" {
			ends[from+1] = true
		}
	case strings.HasPrefix(rest, strings.ToLower(p.literal)):
		ends[from+len(p.literal)] = true
	}
}

const (
	maxHostName = 253 // RFC 1035: 255 octets on the wire
	maxDigits   = 9   // of a number, so that no sum or padding overflows
)

// ParseHosts parses a host name with ranges, or an IP address. Its error says what to write.
func ParseHosts(text string) (HostPattern, error) {
	p := HostPattern{text: text, count: 1}
	var err error
	if addr, notAddress := netip.ParseAddr(text); notAddress == nil {
		p.parts, err = []hostPart{{literal: addr.String()}}, checkLiteral(addr.Zone())
	} else {
		err = p.parse()
	}
	if err != nil {
		return HostPattern{}, err
	}
	return p, nil
}

func (p *HostPattern) parse() error {
	if p.text == "" {
		return errors.New("the host name is empty; write one")
	}
	var err error
	if p.parts, err = parseHostParts(p.text, "["); err != nil {
		return fmt.Errorf("%q: %w", p.text, err)
	}
	for _, part := range p.parts {
		if p.count *= part.count(); p.count > MaxHosts {
			return fmt.Errorf("%q matches more than %d hosts; write a smaller range", p.text, MaxHosts)
		}
	}
	return p.checkNames()
}

func (p hostPart) count() int {
	if p.ranges == nil {
		return 1
	}
	n := 0
	for _, s := range p.ranges {
		n = min(n+s.count(), MaxHosts+1)
	}
	return n
}

// parseHostParts parses a name with brackets and, if special has them, wildcards, which become literals.
func parseHostParts(text, special string) (parts []hostPart, err error) {
	for text != "" && err == nil {
		var part hostPart
		part, text, err = parseHostPart(text, special)
		parts = append(parts, part)
	}
	return parts, err
}

func parseHostPart(text, special string) (hostPart, string, error) {
	end := strings.IndexAny(text, special)
	switch {
	case end == 0 && text[0] != '[':
		return hostPart{literal: text[:1]}, text[1:], nil
	case end < 0:
		end = len(text)
		fallthrough
	case end > 0:
		return hostPart{literal: text[:end]}, text[end:], checkLiteral(text[:end])
	}
	inside, rest, closed := strings.Cut(text[1:], "]")
	if !closed {
		return hostPart{}, "", errors.New("a bracket is not closed; write it as gpu[1-4]")
	}
	var part hostPart
	for item := range strings.SplitSeq(inside, ",") {
		r, err := parseRange(strings.TrimSpace(item))
		if err != nil {
			return hostPart{}, "", err
		}
		part.ranges = append(part.ranges, r)
	}
	return part, rest, nil
}

// parseRange parses "7" or "01-16". The first number's length is the width.
func parseRange(text string) (numberRange, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	if !isNumber(first) || !isNumber(last) {
		return numberRange{}, fmt.Errorf("%q is not a range of numbers; write it as [01-16] or [1,3,5-8]", text)
	}
	low, _ := strconv.Atoi(first) // checked above
	high, _ := strconv.Atoi(last)
	if high < low {
		return numberRange{}, fmt.Errorf("the range %s is reversed; write %s-%s", text, last, first)
	}
	if len(last) != len(first) && (last[0] == '0' || len(last) < len(first)) {
		return numberRange{}, fmt.Errorf("the numbers of %s are padded to different widths; write both with the same "+
			"number of digits", text)
	}
	return numberRange{low: low, high: high, width: len(first)}, nil
}

func isNumber(text string) bool {
	return text != "" && len(text) <= maxDigits && strings.Trim(text, "0123456789") == ""
}

func checkLiteral(text string) error {
	for _, r := range text {
		switch {
		case r == ']':
			return errors.New("a closing bracket without an opening one; write it as gpu[1-4]")
		case !isAlphanumeric(r) && !strings.ContainsRune("-_.", r):
			return fmt.Errorf("%q is not allowed in a host name; use letters, digits, '-', '_' and '.'", r)
		}
	}
	return nil
}

// checkNames checks the length of names, and their first character: other programs read a dash as an option.
func (p *HostPattern) checkNames() error {
	if p.text[0] == '-' || p.text[0] == '.' {
		return fmt.Errorf("%q: a host name must begin with a letter or a digit", p.text)
	}
	length := 0
	for _, part := range p.parts {
		longest := len(part.literal)
		for _, s := range part.ranges {
			longest = max(longest, len(s.number(s.count()-1)))
		}
		length += longest
	}
	if length > maxHostName {
		return fmt.Errorf("%.20q…: a host name has at most %d characters", p.text, maxHostName)
	}
	return nil
}
