package hostpattern

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxCount is how many names a pattern may stand for.
const MaxCount = 100_000

// Pattern is a host name with any number of ranges in it. The zero Pattern
// stands for no name.
type Pattern struct {
	text  string
	parts []part
	count int
}

// part is a piece of a pattern: a text, or the numbers of one pair of brackets.
type part struct {
	literal string
	spans   []span // nil for a literal
}

// span is the numbers from low to high, each padded with zeros to width.
type span struct{ low, high, width int }

func (s span) count() int { return s.high - s.low + 1 }

func (s span) number(i int) string { return fmt.Sprintf("%0*d", s.width, s.low+i) }

// contains says whether the span has a number that is written just like digits.
func (s span) contains(digits string) bool {
	n, err := strconv.Atoi(digits)
	return err == nil && n >= s.low && n <= s.high && s.number(n-s.low) == digits
}

// String is the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Count is how many names the pattern stands for, MaxCount at most. A number
// that is listed twice counts twice.
func (p Pattern) Count() int { return p.count }

// Expand is the names that the pattern stands for, in order.
func (p Pattern) Expand() []string {
	if p.count == 0 {
		return nil
	}
	names := []string{""}
	for _, part := range p.parts {
		names = part.appendTo(names)
	}
	return names
}

func (p part) appendTo(names []string) []string {
	endings := []string{p.literal}
	if p.spans != nil {
		endings = endings[:0]
	}
	for _, s := range p.spans {
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
func (p Pattern) Matches(name string) bool {
	name = Fold(name)
	return p.count > 0 && (matches(p.parts, name) || matches(p.parts, name+"."))
}

func matches(parts []part, rest string) bool {
	if len(parts) == 0 {
		return rest == ""
	}
	if p := parts[0]; p.spans == nil {
		after, ok := strings.CutPrefix(rest, strings.ToLower(p.literal))
		return ok && matches(parts[1:], after)
	}
	for n := 1; n <= min(len(rest), maxDigits) && isDigit(rest[n-1]); n++ {
		for _, s := range parts[0].spans {
			if s.contains(rest[:n]) && matches(parts[1:], rest[n:]) {
				return true
			}
		}
	}
	return false
}

// Fold is a name in the form in which names are compared: small letters, no dot
// at the end.
func Fold(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }
