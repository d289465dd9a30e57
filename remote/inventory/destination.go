package inventory

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// parseDestination reads [user@]name[:port]. The name may have ranges or wildcards, which stay as they are.
func parseDestination(word string) (h remote.Host, err error) {
	name := word
	switch at := strings.LastIndexByte(word, '@'); {
	case at == 0:
		return h, fmt.Errorf("%q has no user before the @; write it as user@host, or @group for a host group", word)
	case at > 0 && at == len(word)-1:
		return h, fmt.Errorf("%q has no host after the @; write it as user@host", word)
	case at > 0: // as in ssh, since a user may be ann@corp.example
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

// splitPort separates the port from a host. Brackets at the beginning that contain
// a colon are around an IPv6 address, not a range.
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

// splitBracketed reads what is inside and after the brackets of [::1]:22.
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
