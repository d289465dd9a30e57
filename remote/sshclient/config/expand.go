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
// An unknown one is kept, since `ssh -G` has expanded some values already.
func (w identity) tokens(q Query, s HostConfig) *strings.Replacer {
	long, _ := os.Hostname() // empty when the kernel has none, as in OpenSSH
	short, _, _ := strings.Cut(long, ".")
	port := strconv.Itoa(s.Port)
	jump := ""
	sum := sha1.Sum([]byte(long + s.HostName + port + s.User + jump)) //nolint:gosec // see above
	return strings.NewReplacer(
		"%%", "%", "%d", w.home, "%h", s.HostName, "%i", w.uid, "%k", cmp.Or(s.HostKeyAlias, q.Host), "%L", short, "%l", long,
		"%n", q.Host, "%p", port, "%r", s.User, "%u", w.user, "%j", jump, "%C", hex.EncodeToString(sum[:]),
	)
}

// environment replaces ${NAME}, the only form of OpenSSH. Variables that are not
// set were refused before, see environmentSet.
func environment(text string, getenv func(string) string) string {
	for {
		before, rest, found := strings.Cut(text, "${")
		name, after, closed := strings.Cut(rest, "}")
		if !found || !closed {
			return text
		}
		text = before + getenv(name) + after
	}
}
