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
	maxDigits   = 9   // of a number, so that no sum or padding overflows
)

// ParseHosts reads a pattern: a host name with ranges, or an IP address. Its error says what to write.
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
	for rest := p.text; rest != ""; {
		var part hostPart
		var err error
		if part, rest, err = parseHostPart(rest); err != nil {
			return fmt.Errorf("%q: %w", p.text, err)
		}
		p.parts = append(p.parts, part)
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

// parseHostPart parses the text up to a bracket, or a pair of brackets.
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
	low, _ := strconv.Atoi(first) // it is a number
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

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

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

// checkNames checks the first character and the length of the names. Other programs would
// read a name that begins with a dash as an option.
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
