package text

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxHosts is how many names a host pattern may stand for.
const MaxHosts = 100_000

// HostPattern is a host name with any number of ranges of numbers in it:
//
//	gpu-[01-16].lab      16 names, padded as the range's first number is
//	node[1,3,5-8]        six names
//	rack[1-2]-gpu[1-4]   eight names, the last range running fastest
//
// It knows no users, ports or groups, and resolves no name. Names are compared
// without regard to case, as DNS does (RFC 4343). The zero HostPattern stands
// for no name.
type HostPattern struct {
	text  string
	parts []hostPart
	count int
}

// hostPart is a piece of a pattern: a text, or the numbers of one pair of brackets.
type hostPart struct {
	literal string
	ranges  []numberRange // nil for a literal
}

// numberRange is the numbers from low to high, each padded with zeros to width.
type numberRange struct{ low, high, width int }

func (r numberRange) count() int { return r.high - r.low + 1 }

func (r numberRange) number(i int) string { return fmt.Sprintf("%0*d", r.width, r.low+i) }

// contains says whether the range has a number that is written just like digits.
func (r numberRange) contains(digits string) bool {
	n, err := strconv.Atoi(digits)
	return err == nil && n >= r.low && n <= r.high && r.number(n-r.low) == digits
}

// String is the pattern as it was written.
func (p HostPattern) String() string { return p.text }

// Count is how many names the pattern stands for, MaxHosts at most. A number
// that is listed twice counts twice.
func (p HostPattern) Count() int { return p.count }

// Expand is the names that the pattern stands for, in order.
func (p HostPattern) Expand() []string {
	if p.count == 0 {
		return nil
	}
	names := []string{""}
	for _, part := range p.parts {
		names = part.appendTo(names)
	}
	return names
}

func (p hostPart) appendTo(names []string) []string {
	endings := []string{p.literal}
	if p.ranges != nil {
		endings = endings[:0]
	}
	for _, s := range p.ranges {
		for i := range s.count() {
			endings = append(endings, s.number(i))
		}
	}
	longer := make([]string, 0, len(names)*len(endings))
	for _, name := range names {
		for _, ending := range endings {
			longer = append(longer, name+ending)
		}
	}
	return longer
}

// Matches says whether name is one of those the pattern stands for.
func (p HostPattern) Matches(name string) bool {
	name = FoldHost(name)
	return p.count > 0 && (matchParts(p.parts, name) || matchParts(p.parts, name+"."))
}

func matchParts(parts []hostPart, rest string) bool {
	if len(parts) == 0 {
		return rest == ""
	}
	if p := parts[0]; p.ranges == nil {
		after, ok := strings.CutPrefix(rest, strings.ToLower(p.literal))
		return ok && matchParts(parts[1:], after)
	}
	for n := 1; n <= min(len(rest), maxDigits) && isDigit(rest[n-1]); n++ {
		for _, s := range parts[0].ranges {
			if s.contains(rest[:n]) && matchParts(parts[1:], rest[n:]) {
				return true
			}
		}
	}
	return false
}

// FoldHost is a host name in the form in which names are compared: small letters, no dot
// at the end.
func FoldHost(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// SplitHosts cuts a list at its commas, but not at those within brackets, and trims
// the spaces around each item.
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
