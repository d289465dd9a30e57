package config

import (
	"cmp"
	"strings"
	"time"
)

// Strictness is what ssh_config's StrictHostKeyChecking asks for.
type Strictness string

// The values as `ssh -G` prints them, without its synonyms.
const (
	StrictAsk       Strictness = "ask"
	StrictYes       Strictness = "yes"
	StrictAcceptNew Strictness = "accept-new"
	StrictOff       Strictness = "no"
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
	IdentityAgent    string // a socket's path; empty for no agent

	UserKnownHosts   []string
	GlobalKnownHosts []string
	HostKeyAlias     string
	HostKeyChecking  Strictness
	HashKnownHosts   bool

	ConnectTimeout      time.Duration // 0: not set
	ServerAliveInterval time.Duration // 0: not set
	ServerAliveCountMax int
	AddressFamily       string // any, inet or inet6
	BindAddress         string // empty: left to the kernel
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
