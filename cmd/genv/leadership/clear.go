package leadership

import (
	"net"
	"net/url"
	"strings"

	"github.com/rs/zerolog"
)

// WarnOfClearText says that what goes to etcd and back goes over a network without TLS.
func (config Config) WarnOfClearText(log zerolog.Logger) {
	members := config.inClearText()
	if len(members) == 0 {
		return
	}
	readable := "the memory of the leader"
	if config.Etcd.User != "" {
		readable = "the password of " + config.Etcd.User + " and " + readable
	}
	log.Warn().Str("members", strings.Join(members, " ")).Msg("the connection to etcd is not encrypted: anyone on the network can read " + readable +
		", and anyone who can modify the traffic decides which controller acts. Set up TLS in etcd and write --leader etcds://…")
}

// inClearText are the members that are asked without TLS and are not on this machine, as far as
// their names say.
func (config Config) inClearText() (members []string) {
	for _, endpoint := range config.Etcd.Endpoints {
		at, err := url.Parse(endpoint)
		if err != nil || at.Scheme != "http" || isLoopback(at.Hostname()) {
			continue
		}
		members = append(members, at.Host)
	}
	return members
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
