package text

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

const (
	maxHostName = 253 // RFC 1035: 255 octets on the wire
	maxDigits   = 9   // of a number, so that no sum or padding runs over
)

// ParseHosts reads a pattern: a host name with ranges, or an IP address. Its errors
// are one line that says what to write instead.
func ParseHosts(text string) (HostPattern, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return HostPattern{text: text, parts: []hostPart{{literal: addr.String()}}, count: 1}.checked(checkLiteral(addr.Zone()))
	}
	if text == "" {
		return HostPattern{}, errors.New("the host name is empty; write one")
	}
	p := HostPattern{text: text, count: 1}
	for rest := text; rest != ""; {
		var piece hostPart
		var err error
		if piece, rest, err = parseHostPart(rest); err != nil {
			return HostPattern{}, fmt.Errorf("%q: %w", text, err)
		}
		p.parts = append(p.parts, piece)
		if p.count *= piece.count(); p.count > MaxHosts {
			return HostPattern{}, fmt.Errorf("%q stands for more than %d hosts; write a smaller range", text, MaxHosts)
		}
	}
	return p.checked(p.check())
}

// checked is the pattern if there is no error.
func (p HostPattern) checked(err error) (HostPattern, error) {
	if err != nil {
		return HostPattern{}, err
	}
	return p, nil
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

// parseHostPart takes the text up to a bracket, or a pair of brackets.
func parseHostPart(text string) (hostPart, string, error) {
	if text[0] != '[' {
		end := strings.IndexByte(text, '[')
		if end < 0 {
			end = len(text)
		}
		return hostPart{literal: text[:end]}, text[end:], checkLiteral(text[:end])
	}
	inside, rest, closed := strings.Cut(text[1:], "]")
	if !closed {
		return hostPart{}, "", errors.New("a bracket is not closed; write it as gpu[1-4]")
	}
	ranges, err := parseRanges(inside)
	return hostPart{ranges: ranges}, rest, err
}

func parseRanges(list string) ([]numberRange, error) {
	var ranges []numberRange
	for item := range strings.SplitSeq(list, ",") {
		s, err := parseRange(strings.TrimSpace(item))
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, s)
	}
	return ranges, nil
}

// parseRange reads "7" or "01-16". The first number's digits are the width.
func parseRange(text string) (numberRange, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	if !isNumber(first) || !isNumber(last) {
		return numberRange{}, fmt.Errorf("%q is not a range of numbers; write it as [01-16] or [1,3,5-8]", text)
	}
	low, _ := strconv.Atoi(first) // digits, and few of them
	high, _ := strconv.Atoi(last)
	if high < low {
		return numberRange{}, fmt.Errorf("the range %s runs backwards; write %s-%s", text, last, first)
	}
	if len(last) != len(first) && (last[0] == '0' || len(last) < len(first)) {
		return numberRange{}, fmt.Errorf("the numbers of %s are padded to different widths; write both with the same number of digits", text)
	}
	return numberRange{low: low, high: high, width: len(first)}, nil
}

func isNumber(text string) bool {
	if text == "" || len(text) > maxDigits {
		return false
	}
	for i := range len(text) {
		if !isDigit(text[i]) {
			return false
		}
	}
	return true
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// checkLiteral lets through what host names are made of.
func checkLiteral(text string) error {
	for _, r := range text {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
		case r == ']':
			return errors.New("a bracket is closed that was not opened; write it as gpu[1-4]")
		default:
			return fmt.Errorf("%q is not allowed in a host name; use letters, digits, '-', '_' and '.'", r)
		}
	}
	return nil
}

// check looks at the names as a whole: a name that begins with a dash would be
// read as an option by other programs.
func (p HostPattern) check() error {
	if p.text[0] == '-' || p.text[0] == '.' {
		return fmt.Errorf("%q: a host name begins with a letter or a digit", p.text)
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
