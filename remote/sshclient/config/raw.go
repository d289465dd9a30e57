package config

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// raw are values by lower-case keyword, as `ssh -G` prints them: several for keywords that may be repeated, else one.
type raw map[string][]string

func (r raw) first(key string) string {
	if values := r[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Error is a configuration that genv can't use.
type Error struct {
	File    string // empty if no file is the cause
	Line    int    // from 1; 0 for the whole file
	Problem string

	keyword string // the one with the value that is the cause, if the place is not known yet
}

func (e *Error) Error() string {
	switch {
	case e.File == "":
		return e.Problem
	case e.Line == 0:
		return e.File + ": " + e.Problem
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem)
}

// NeedsOpenSSH reports whether the configuration is one that ssh(1) can honour, and genv's own SSH can't: it
// forbids a login with a key, allows only algorithms that the library lacks, or needs what we leave out.
func (e *Error) NeedsOpenSSH() bool {
	return e.keyword == "pubkeyauthentication" || e.keyword == "preferredauthentications" ||
		slices.Contains(leftOut, e.keyword) ||
		slices.ContainsFunc(algorithmLists(), func(l algorithmList) bool { return l.keyword() == e.keyword })
}

// defaultIdentities are tried when no IdentityFile is configured (ssh(1), -i).
var defaultIdentities = []string{
	"~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ecdsa_sk", "~/.ssh/id_ed25519", "~/.ssh/id_ed25519_sk",
}

// settings expands raw values for a host, whichever way they were read.
func (r raw) settings(q Lookup, who identity) (HostConfig, error) {
	s := HostConfig{
		User:          cmp.Or(r.first("user"), who.user),
		AddressFamily: cmp.Or(strings.ToLower(r.first("addressfamily")), "any"),
	}
	s.HostName = usualSpelling(strings.ToLower(q.target(r.first("hostname"))))
	if err := r.numbers(&s); err != nil {
		return s, err
	}
	s.HostKeyAlias = strings.ToLower(unlessNone(r.first("hostkeyalias")))
	if err := r.environmentSet(); err != nil {
		return s, err
	}
	tokens := who.tokens(q, s)
	r.proxy(&s, tokens)
	r.files(&s, tokens, who)
	s.IdentitiesOnly, s.BatchMode = yes(r.first("identitiesonly")), yes(r.first("batchmode"))
	s.HashKnownHosts = yes(r.first("hashknownhosts"))
	s.CheckHostIP = yes(r.first("checkhostip"))
	s.KnownHostsCommand = who.knownHostsCommand(r.first("knownhostscommand"), q, s)
	s.BindAddress, s.BindInterface = unlessNone(r.first("bindaddress")), unlessNone(r.first("bindinterface"))
	s.AcceptNew = strings.EqualFold(r.first("stricthostkeychecking"), "accept-new")
	return s, r.restrictions(&s)
}

var variable = text.Pattern(`\$\{([^}]*)\}`)

// environmentSet refuses a ${NAME} that is not set, as ssh does.
func (r raw) environmentSet() error {
	for _, keyword := range []string{
		"identityfile", "certificatefile", "identityagent", "userknownhostsfile",
		"knownhostscommand",
	} {
		if name := firstUnset(strings.Join(r[keyword], " ")); name != "" {
			return &Error{keyword: keyword, Problem: fmt.Sprintf("the environment has no %s for %s", name, keyword)}
		}
	}
	return nil
}

// firstUnset is the first NAME of a ${NAME} that the environment lacks; empty if it has all.
func firstUnset(value string) string {
	for _, match := range variable().FindAllStringSubmatch(value, -1) {
		if _, set := os.LookupEnv(match[1]); !set {
			return match[1]
		}
	}
	return ""
}

func (r raw) numbers(s *HostConfig) (err error) {
	number := func(key string, otherwise int) int {
		value := unlessNone(r.first(key))
		if value == "" {
			return otherwise
		}
		n, bad := strconv.Atoi(value)
		if bad != nil && err == nil {
			err = &Error{keyword: key, Problem: fmt.Sprintf("bad value %q for %s in ssh_config", value, key)}
		}
		return n
	}
	s.Port = number("port", 22)
	s.RequiredRSASize = max(number("requiredrsasize", 0), minRSASize)
	s.ConnectTimeout = time.Duration(number("connecttimeout", 0)) * time.Second
	s.ServerAliveInterval = time.Duration(number("serveraliveinterval", 0)) * time.Second
	s.ServerAliveCountMax = number("serveralivecountmax", 3)
	return err
}

func (r raw) proxy(s *HostConfig, tokens *strings.Replacer) {
	if jump := unlessNone(r.first("proxyjump")); jump != "" {
		s.ProxyJump = strings.Split(tokens.Replace(jump), ",")
		return
	}
	s.ProxyCommand = tokens.Replace(unlessNone(r.first("proxycommand")))
}

func (r raw) files(s *HostConfig, tokens *strings.Replacer, who identity) {
	expanded := func(keyword string, defaults ...string) (paths []string) {
		values := r[keyword]
		if len(values) == 0 {
			values = defaults
		}
		for _, value := range values {
			if value = unlessNone(who.path(tokens.Replace(value))); value != "" {
				paths = append(paths, value)
			}
		}
		return paths
	}
	s.IdentityFiles, s.CertificateFiles = expanded("identityfile", defaultIdentities...), expanded("certificatefile")
	s.UserKnownHosts = expanded("userknownhostsfile", "~/.ssh/known_hosts", "~/.ssh/known_hosts2")
	s.GlobalKnownHosts = expanded("globalknownhostsfile", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
	switch agent := r.first("identityagent"); {
	case agent == "" || agent == "SSH_AUTH_SOCK":
		s.IdentityAgent = os.Getenv("SSH_AUTH_SOCK")
	case strings.HasPrefix(agent, "$") && !strings.HasPrefix(agent, "${"):
		s.IdentityAgent = os.Getenv(agent[1:])
	default:
		s.IdentityAgent = who.path(tokens.Replace(unlessNone(agent)))
	}
}

func yes(value string) bool {
	return strings.EqualFold(value, "yes") || strings.EqualFold(value, "true")
}

func unlessNone(value string) string {
	if isNone(value) {
		return ""
	}
	return value
}
