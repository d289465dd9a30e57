package config

import "time"

// Strictness is what ssh_config's StrictHostKeyChecking asks for.
type Strictness string

// The values as `ssh -G` prints them, without its synonyms.
const (
	StrictAsk       Strictness = "ask"
	StrictYes       Strictness = "yes"
	StrictAcceptNew Strictness = "accept-new"
	StrictOff       Strictness = "no"
)

// HostConfig are the fields of ssh_config that genv honours, expanded: file names
// are absolute, tokens are filled in.
type HostConfig struct {
	HostName string // where to connect: a name or an address
	User     string
	Port     int

	ProxyJump    []string // hops as written, [user@]host[:port] or ssh://…, first hop first
	ProxyCommand string   // for /bin/sh -c; empty when there is none

	IdentityFiles    []string
	CertificateFiles []string
	IdentitiesOnly   bool
	IdentityAgent    string // a socket's path; empty when no agent is to be asked

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

// Query is a host as the administrator calls it, with what is set for it
// outside ssh_config and takes precedence over it.
type Query struct {
	Host     string // matched against Host patterns
	HostName string // empty: left to ssh_config
	User     string // empty: likewise
	Port     int    // 0: likewise
}
