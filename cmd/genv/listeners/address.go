package listeners

import (
	"net"
	"net/netip"
	"strconv"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// readAddress reads an address of this machine and a port, as a flag has them. example is
// one of both, and or what else the flag takes.
func readAddress(flag, text, example, or string) (address string, port int, err error) {
	host, after, err := net.SplitHostPort(text)
	number, notANumber := strconv.ParseUint(after, 10, 16)
	if err != nil || notANumber != nil {
		return "", 0, command.UsageError("--%s %q: write an address and a port, as %s%s", flag, text, example, or)
	}
	switch host {
	case "":
		host = "0.0.0.0"
	case "localhost":
		host = "127.0.0.1"
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return "", 0, command.UsageError("--%s %q: write the address of this machine in numbers, as %s", flag, text, example)
	}
	return host, int(number), nil
}

// isLoopback reports whether only this machine can connect to an address.
func isLoopback(address string) bool { return netip.MustParseAddr(address).Unmap().IsLoopback() }
