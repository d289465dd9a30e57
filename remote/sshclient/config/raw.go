package config

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // %C is defined as a SHA-1 of public names, no secret (ssh_config(5), TOKENS)
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// raw has values by lower-case keyword, like `ssh -G`.
type raw map[string][]string

func (r raw) first(key string) string {
	if values := r[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Error is a configuration that genv can't use.
type Error struct {
	File    string // empty if no file is to blame
	Line    int    // from 1; 0: the whole file
	Problem string

	keyword string // of the offending value, if the place isn't known yet
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

// NeedsOpenSSH says whether ssh(1) supports the configuration.
func (e *Error) NeedsOpenSSH() bool {
	return e.keyword == "pubkeyauthentication" || e.keyword == "preferredauthentications" ||
		slices.Contains(leftOut, e.keyword) ||
		slices.ContainsFunc(algorithmLists(), func(l algorithmList) bool { return l.keyword() == e.keyword })
}

// defaultIdentities are tried without an IdentityFile (ssh(1), -i).
var defaultIdentities = []string{
	"~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ecdsa_sk", "~/.ssh/id_ed25519", "~/.ssh/id_ed25519_sk",
}

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

// environmentSet refuses an unset ${NAME}, like ssh.
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

// identity is the user for tokens, `~` and ${ENV}.
type identity struct {
	user      string // empty if the uid has no account
	uid, home string
}

const noHome = "/nonexistent" // has no files

// whoAmI finds the real uid's account: $USER and $HOME may be another user's (`sudo -E`, `su`).
func whoAmI(o ResolverOptions) identity {
	who := identity{uid: fmt.Sprint(os.Getuid())}
	if account, err := (nss.Passwd{}).Own(context.Background()); err == nil {
		who.user, who.home = account.Name, account.Home
	} else {
		who.home = ownFolder(os.Getenv("HOME"))
	}
	if o.User != "" {
		who.user = o.User
	}
	if o.Home != "" {
		who.home = o.Home
	}
	return who
}

// ownFolder must be this user's, as $HOME in containers without an account.
func ownFolder(folder string) string {
	info, err := os.Stat(folder)
	if err != nil || !filepath.IsAbs(folder) {
		return noHome
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Getuid() {
		return noHome
	}
	return folder
}

// path expands `~` and `~name` like OpenSSH.
func (w identity) path(name string) string {
	name = environment(name)
	if !strings.HasPrefix(name, "~") {
		return name
	}
	who, rest, _ := strings.Cut(name[1:], "/")
	home := w.home
	if who != "" {
		other, err := nss.Passwd{}.Named(context.Background(), who)
		if err != nil {
			return name
		}
		home = other.Home
	}
	return strings.TrimSuffix(home+"/"+rest, "/")
}

// tokens replaces those of ssh_config(5) for file names and ProxyCommand, and more (pairs of token and value). Unknown
// ones stay, as `ssh -G` has expanded some.
func (w identity) tokens(q Lookup, s HostConfig, more ...string) *strings.Replacer {
	long, _ := os.Hostname() // may be empty, as in OpenSSH
	short, _, _ := strings.Cut(long, ".")
	port := strconv.Itoa(s.Port)
	sum := sha1.Sum([]byte(long + s.HostName + port + s.User)) //nolint:gosec // see above
	return strings.NewReplacer(append(more,
		"%%", "%", "%d", w.home, "%h", s.HostName, "%i", w.uid, "%k", cmp.Or(s.HostKeyAlias, q.Host), "%L", short, "%l",
		long,
		"%n", q.Host, "%p", port, "%r", s.User, "%u", w.user, "%j", "", "%C", hex.EncodeToString(sum[:]),
	)...)
}

// environment replaces ${NAME}, OpenSSH's only form. environmentSet has refused unset ones.
func environment(text string) string {
	for {
		before, rest, found := strings.Cut(text, "${")
		name, after, closed := strings.Cut(rest, "}")
		if !found || !closed {
			return text
		}
		text = before + os.Getenv(name) + after
	}
}

// knownHostsCommand splits and expands KnownHostsCommand. A NUL byte, which no value has, marks tokens known only
// during the handshake.
func (w identity) knownHostsCommand(text string, q Lookup, s HostConfig) []string {
	command := strings.Fields(unlessNone(text))
	tokens := w.tokens(q, s, "%H", "\x00H")
	for i := 1; i < len(command); i++ { // not the program's name
		command[i] = environment(tokens.Replace(command[i]))
	}
	return command
}
