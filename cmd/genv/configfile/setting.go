package configfile

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// setting is a flag that config.yaml may set.
type setting struct {
	key  string
	in   []string // sections
	read func(*strictyaml.Node) []string
}

// The sections that aren't a command. As an argument "" is any section.
const (
	top    = "(top)"
	remote = "remote"
)

// hostCommands are the commands below `genv remote` that take hosts by -H, except `hosts`: that
// is a key.
func hostCommands() []string {
	return []string{"activate", "devices", "doctor", "enforce", "envs", "gpus", "install", "monitor", "query", "top", "wait", "watch"}
}

func sectionNames() []string { return append(hostCommands(), remote, "exempt", "history", "report") }

// settings are the flags that config.yaml may set: those about the site, and none about a
// single run or about what is printed.
func settings() []setting {
	all := append(hostCommands(), top, remote)
	watching := []string{"enforce", "watch"}
	return []setting{
		{"hosts", all, hostList},
		{"hostfile", all, path},
		{"exclude", all, hostList},
		{"username", all, word},
		{"timeout", all, duration(time.Millisecond)},
		{"command-timeout", all, duration(time.Millisecond)},
		{"fanout", all, number(1, 1_000_000)},
		{"exit-on-error", all, yesNo},
		{"quiet", all, yesNo},
		{"verbose", all, yesNo},
		{"ssh-config", all, path},
		{"no-sudo", all, yesNo},
		{"ssh", all, word},

		{"policy", []string{top, "enforce"}, policyPath},
		{"audit-log", []string{top, "enforce", "exempt", "history"}, path},
		{"audit-size", []string{"enforce"}, size},
		{"audit-keep", []string{"enforce"}, number(1, 1_000_000)},
		{"state-dir", []string{"enforce", "exempt", "report"}, path},
		{"history", []string{"enforce", "report"}, word},
		{"history-fleet", []string{"enforce", "report"}, word},
		{"history-keep", []string{"enforce"}, duration(24 * time.Hour)},
		{"history-names", []string{"enforce"}, duration(24 * time.Hour)},
		{"timestamps", watching, word},
		{"summary", []string{"enforce"}, duration(time.Millisecond)},
		{"leader", []string{"doctor", "enforce"}, word},
		{"leader-ca", []string{"doctor", "enforce"}, path},
		{"leader-cert", []string{"doctor", "enforce"}, path},
		{"leader-key", []string{"doctor", "enforce"}, path},
		{"leader-login", []string{"doctor", "enforce"}, path},

		{"interval", []string{"enforce", "monitor", "top", "wait", "watch"}, duration(0)},
		{"within", []string{"wait"}, duration(time.Millisecond)},
		{"filter", []string{"top"}, word},
		{"socket", []string{top, "enforce", "exempt", "top", "watch"}, socketPath},
		{"metrics", watching, word},
		{"web", watching, word},
		{"web-names", watching, word},
		{"web-host", watching, wordList},
		{"web-config", watching, path},

		{"path", []string{"install"}, path},
		{"sudoers-for", []string{"install"}, word},
		{"host-timeout", []string{"install"}, duration(time.Millisecond)},
		{"binary-amd64", []string{"install"}, path},
		{"binary-arm64", []string{"install"}, path},

		{"address", []string{"monitor"}, word},
		{"port", []string{"monitor"}, number(1, 65535)},
		{"config-dir", []string{"monitor"}, path},
	}
}

// flag is the name of the flag.
func (s *setting) flag() string {
	if s.key == "hosts" {
		return "host"
	}
	return s.key
}

func (s *setting) isIn(section string) bool { return section == "" || slices.Contains(s.in, section) }

func find(known []setting, key, section string) *setting {
	if i := slices.IndexFunc(known, func(s setting) bool { return s.key == key && s.isIn(section) }); i >= 0 {
		return &known[i]
	}
	return nil
}

// sectionsOf are where a setting may be, for messages.
func sectionsOf(known []setting, key string) string {
	return "`" + strings.Join(find(known, key, "").in, ":`, `") + ":`"
}

func sectionTitle(section string) string {
	switch section {
	case top:
		return "all commands"
	case remote:
		return "all commands of genv remote"
	}
	return "genv remote " + section
}

// refusal is why a flag of genv can't be set here, if it can't.
func refusal(flag string) string {
	switch flag {
	case "insecure-ignore-host-keys", "act-unrecorded", "allow-actions":
		return "it is asked for in a single run; write --" + flag + " in the command line"
	case "format", "no-header", "no-summary", "timestamp":
		return "programs that run genv rely on the default; write --" + flag + " in the command line"
	case "non-env-processes", "env-devices", "env-memory", "no-non-env-processes", "no-env-devices", "no-env-memory", "max-devices-per-user", "max-devices-for-user":
		return "it would override the policy file; write it into " + Policy
	case "dry-run", "exit-code", "cycles", "once", "plain", "check", "upgrade", "uninstall", "user", "pid", "since", "name", "query", "gpus", "over-subscribe":
		return "it is about a single run; write --" + flag + " in the command line"
	}
	return ""
}

func word(n *strictyaml.Node) []string {
	text := n.Scalar()
	if text == "" {
		n.Failf("the value is empty; write it, or remove the line")
	}
	return []string{text}
}

// wordList is a word, or a list of words.
func wordList(n *strictyaml.Node) []string {
	if !n.IsList() {
		return word(n)
	}
	var words []string
	n.List(func(item *strictyaml.Node) { words = append(words, word(item)...) })
	return words
}

// hostList is hosts as with -H. Files in it must not depend on the folder in which genv is
// started.
func hostList(n *strictyaml.Node) []string {
	words := wordList(n)
	for _, word := range words {
		for _, item := range text.SplitHosts(word) {
			ext := filepath.Ext(item)
			if (ext == ".yaml" || ext == ".yml") && !strings.Contains(item, "label:") && !filepath.IsAbs(item) {
				n.Failf("%s: write the file with its absolute path", item)
			}
		}
	}
	return words
}

// path is a path that doesn't depend on the folder in which genv is started.
func path(n *strictyaml.Node) []string {
	words := word(n)
	if words[0] != "" && !filepath.IsAbs(words[0]) {
		n.Failf("%q is not an absolute path; write one that begins with /", words[0])
	}
	return words
}

// policyPath is a path, or none.
func policyPath(n *strictyaml.Node) []string {
	if n.IsText() && n.Text() == NoPolicy {
		return []string{NoPolicy}
	}
	return path(n)
}

// socketPath is a path, or off.
func socketPath(n *strictyaml.Node) []string {
	if n.IsText() && n.Text() == Off {
		return []string{Off}
	}
	return path(n)
}

func yesNo(n *strictyaml.Node) []string {
	n.Bool()
	return []string{n.Scalar()}
}

func number(low, high int) func(*strictyaml.Node) []string {
	return func(n *strictyaml.Node) []string {
		n.Int(low, high)
		return []string{n.Scalar()}
	}
}

func duration(low time.Duration) func(*strictyaml.Node) []string {
	return func(n *strictyaml.Node) []string {
		n.Duration(low, 365*24*time.Hour)
		return []string{n.Scalar()}
	}
}

func size(n *strictyaml.Node) []string {
	words := word(n)
	if m, err := snapshot.ParseMemory(words[0]); words[0] != "" && (err != nil || m.Bytes() < 1e6) {
		n.Failf("%q is not a size of 1m or more; write it as 64m", words[0])
	}
	return words
}

// Keys are the keys of a section; "" is the top of the file.
func Keys(section string) []string {
	if section == "" {
		section = top
	}
	var keys []string
	for _, s := range settings() {
		if s.isIn(section) {
			keys = append(keys, s.key)
		}
	}
	return keys
}
