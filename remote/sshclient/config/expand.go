package config

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // %C is defined as a SHA-1 of public names, no secret (ssh_config(5), TOKENS)
	"encoding/hex"
	"os"
	"strconv"
	"strings"
)

// tokens replaces those that ssh_config(5) lists for file names and ProxyCommand.
// An unknown one is kept, since `ssh -G` has expanded some values already. More
// tokens with their values may follow.
func (w identity) tokens(q Query, s HostConfig, more ...string) *strings.Replacer {
	long, _ := os.Hostname() // empty when the kernel has none, as in OpenSSH
	short, _, _ := strings.Cut(long, ".")
	port := strconv.Itoa(s.Port)
	jump := ""
	sum := sha1.Sum([]byte(long + s.HostName + port + s.User + jump)) //nolint:gosec // see above
	return strings.NewReplacer(append(more,
		"%%", "%", "%d", w.home, "%h", s.HostName, "%i", w.uid, "%k", cmp.Or(s.HostKeyAlias, q.Host), "%L", short, "%l", long,
		"%n", q.Host, "%p", port, "%r", s.User, "%u", w.user, "%j", jump, "%C", hex.EncodeToString(sum[:]),
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

// knownHostsCommand splits and expands KnownHostsCommand. What is only known in
// the handshake is marked with a NUL byte in place of the percent sign, which the
// values of other tokens can't contain.
func (w identity) knownHostsCommand(text string, q Query, s HostConfig) []string {
	command := strings.Fields(unlessNone(text))
	tokens := w.tokens(q, s, "%H", "\x00H")
	for i := 1; i < len(command); i++ { // the program's name is taken as it is
		command[i] = environment(tokens.Replace(command[i]))
	}
	return command
}
