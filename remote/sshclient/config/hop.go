package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// ParseHop reads an item of ProxyJump: [user@]host[:port] or an ssh:// URI
// (ssh_config(5), ProxyJump).
func ParseHop(item string) (Query, error) {
	rest, _ := strings.CutPrefix(item, "ssh://")
	q := Query{Host: strings.TrimSuffix(rest, "/")}
	if at := strings.LastIndexByte(q.Host, '@'); at >= 0 {
		q.User, q.Host = q.Host[:at], q.Host[at+1:]
	}
	if strings.Count(q.Host, ":") == 1 || strings.HasPrefix(q.Host, "[") && !strings.HasSuffix(q.Host, "]") {
		host, port, err := net.SplitHostPort(q.Host)
		if err != nil {
			return q, &Error{Problem: fmt.Sprintf("ProxyJump: %q is not [user@]host[:port]", item)}
		}
		if q.Port, err = strconv.Atoi(port); err != nil || q.Port < 1 {
			return q, &Error{Problem: fmt.Sprintf("ProxyJump: %q is not a port", port)}
		}
		q.Host = host
	}
	q.Host = strings.Trim(q.Host, "[]")
	return q, Valid(q)
}
