package config

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// HostConfig is what ssh_config sets for a host, as far as genv uses it. File names
// are absolute, tokens are expanded.
type HostConfig struct {
	HostName string // where to connect: a name or an address
	User     string
	Port     int

	ProxyJump    []string // hops as written, [user@]host[:port] or ssh://…, first hop first
	ProxyCommand string   // for /bin/sh -c; empty for none

	IdentityFiles    []string
	CertificateFiles []string
	IdentitiesOnly   bool
	BatchMode        bool   // genv asks for no passphrase
	IdentityAgent    string // a socket's path; empty for no agent

	UserKnownHosts   []string
	GlobalKnownHosts []string
	HostKeyAlias     string
	AcceptNew        bool // StrictHostKeyChecking accept-new: otherwise an unknown key is refused
	HashKnownHosts   bool
	CheckHostIP      bool
	// NoHostAuthentication is NoHostAuthenticationForLocalhost.
	NoHostAuthentication bool
	// KnownHostsCommand is a program and its arguments, for no shell. In these, NUL
	// bytes followed by f, H, I, K or t stand for tokens of the handshake.
	KnownHostsCommand []string
	FingerprintMD5    bool

	// Algorithms in the order of preference, each of which the SSH library has. The
	// resolver leaves no list empty. PubkeyAcceptedAlgorithms are for keys of the
	// user (nil: ssh's default), CASignatureAlgorithms for the authorities of host
	// certificates.
	KexAlgorithms, Ciphers, MACs                                       []string
	HostKeyAlgorithms, PubkeyAcceptedAlgorithms, CASignatureAlgorithms []string
	// FixedHostKeyOrder says that HostKeyAlgorithms is a list of its own, or begins with
	// `^`: then the types of known keys don't go first (ssh_config(5), HostKeyAlgorithms).
	FixedHostKeyOrder bool
	RequiredRSASize   int // in bits, of host keys and keys of the user

	ConnectTimeout      time.Duration // 0: not set
	ServerAliveInterval time.Duration // 0: not set
	ServerAliveCountMax int
	AddressFamily       string // any, inet or inet6
	BindAddress         string // an address or a name; empty: left to the kernel
}

// Query is a host as the administrator names it, with the settings that take
// precedence over ssh_config.
type Query struct {
	Host     string // matched against Host patterns
	HostName string // empty: left to ssh_config
	User     string // empty: likewise
	Port     int    // 0: likewise
}

// target is where to connect with a value of HostName, which may be empty.
func (q Query) target(hostName string) string {
	return strings.NewReplacer("%%", "%", "%h", q.Host).Replace(cmp.Or(hostName, q.Host))
}

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
