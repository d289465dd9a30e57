package config

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // %C is defined as a SHA-1 of public names, no secret (ssh_config(5), TOKENS)
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/seed-3119e985/genv/snapshot/nss"
)

// identity is the user who runs genv, for tokens, `~` and ${ENV}.
type identity struct {
	user      string // empty if the system has no account for uid
	uid, home string
}

// noHome is a folder that does not exist, so that there are no files in it.
const noHome = "/nonexistent"

// whoAmI finds the account of the real uid. $USER and $HOME may be those of another
// user (`sudo -E`, `su`), so they don't count.
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

// ownFolder is the folder if it belongs to this user: without an account, as in
// many containers, $HOME is used only then.
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

// noUser is the error if there is no name to log in with; ssh refuses to run then.
func (w identity) noUser() error {
	return &Error{Problem: fmt.Sprintf("there is no user name to log in with: this machine has no account for uid "+
		"%s; set User in ssh_config or `user:` in hosts.yaml", w.uid)}
}

// path makes a file name absolute as OpenSSH does, from `~` and `~name`.
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

// tokens replaces those that ssh_config(5) lists for file names and ProxyCommand. An unknown one is kept, since `ssh
// -G` has expanded some values already. More tokens with their values may follow.
func (w identity) tokens(q Lookup, s HostConfig, more ...string) *strings.Replacer {
	long, _ := os.Hostname() // empty when the kernel has none, as in OpenSSH
	short, _, _ := strings.Cut(long, ".")
	port := strconv.Itoa(s.Port)
	sum := sha1.Sum([]byte(long + s.HostName + port + s.User)) //nolint:gosec // see above
	return strings.NewReplacer(append(more,
		"%%", "%", "%d", w.home, "%h", s.HostName, "%i", w.uid, "%k", cmp.Or(s.HostKeyAlias, q.Host), "%L", short, "%l",
		long,
		"%n", q.Host, "%p", port, "%r", s.User, "%u", w.user, "%j", "", "%C", hex.EncodeToString(sum[:]),
	)...)
}

// environment replaces ${NAME}, the only form of OpenSSH. Variables that are not
// set were refused before, see environmentSet.
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

// knownHostsCommand splits and expands KnownHostsCommand. What is only known in the handshake is marked with a NUL byte
// in place of the percent sign, which the values of other tokens can't contain.
func (w identity) knownHostsCommand(text string, q Lookup, s HostConfig) []string {
	command := strings.Fields(unlessNone(text))
	tokens := w.tokens(q, s, "%H", "\x00H")
	for i := 1; i < len(command); i++ { // the program's name is taken as it is
		command[i] = environment(tokens.Replace(command[i]))
	}
	return command
}
