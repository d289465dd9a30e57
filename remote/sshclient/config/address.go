package config

import (
	"net/netip"
	"regexp"
	"strings"
	"sync"
)

// usualSpelling is the usual spelling of an address, by which ssh looks it up in
// known_hosts: ::1 for 0:0:0:0:0:0:0:1. A name is returned as it is.
func usualSpelling(name string) string {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.String()
	}
	return name
}

var unusual = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)^(0x[\da-f]*|\d+)(\.(0x[\da-f]*|\d+))*$`) })

// isUnusual reports whether it takes ssh to say which address is meant: 127.1, 0x7f000001,
// or a zone by its number.
func isUnusual(name string) bool {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.Zone() != "" && strings.Trim(a.Zone(), "0123456789") == ""
	}
	return unusual().MatchString(name)
}
