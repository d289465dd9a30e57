package config

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// usualSpelling is the usual spelling of an address, by which ssh looks it up in
// known_hosts: 127.0.0.1 for 127.1 or 0x7f000001, ::1 for 0:0:0:0:0:0:0:1. A name is
// returned as it is.
func usualSpelling(name string) string {
	if strings.Contains(name, ":") {
		if a, err := netip.ParseAddr(name); err == nil {
			return zoneByName(a).String()
		}
		return name
	}
	if a, ok := parseIPv4(name); ok {
		return a.String()
	}
	return name
}

// zoneByName replaces a zone that is a number by its interface's name.
func zoneByName(a netip.Addr) netip.Addr {
	if number, err := strconv.Atoi(a.Zone()); err == nil && a.IsLinkLocalUnicast() {
		if link, err := net.InterfaceByIndex(number); err == nil {
			return a.WithZone(link.Name)
		}
	}
	return a
}

// parseIPv4 reads what inet_aton(3) accepts: one to four numbers, decimal, octal or
// hexadecimal, of which the last one fills the rest of the address.
func parseIPv4(text string) (netip.Addr, bool) {
	parts := strings.Split(text, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var value uint64
	last := len(parts) - 1
	for i, part := range parts {
		n, ok := parseNumber(part)
		shift := 8 * (3 - i)
		if i < last && n > 255 || i == last && n >= 1<<(shift+8) || !ok {
			return netip.Addr{}, false
		}
		if i == last {
			shift = 0
		}
		value |= n << shift
	}
	var bytes [4]byte
	binary.BigEndian.PutUint32(bytes[:], uint32(value))
	return netip.AddrFrom4(bytes), true
}

// parseNumber reads a number as C does: 0x is hexadecimal, 0 octal.
func parseNumber(text string) (uint64, bool) {
	base := 10
	switch {
	case strings.HasPrefix(text, "0x"), strings.HasPrefix(text, "0X"):
		text, base = text[2:], 16
	case len(text) > 1 && text[0] == '0':
		text, base = text[1:], 8
	}
	n, err := strconv.ParseUint(text, base, 32)
	return n, err == nil && !strings.HasPrefix(text, "+")
}
