package command

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// The sections that aren't a command.
const (
	topSection    = "(top)"
	remoteSection = "remote"
)

// configKeys are the flags that config.yaml may set, by section and key. Section "" has those that it
// may not set.
type configKeys map[string]map[string]cli.Flag

// keysOf reads them from the flags of the commands below `genv remote`.
func keysOf(commands []*cli.Command) configKeys {
	k := configKeys{}
	for _, cmd := range commands {
		for _, flag := range cmd.Flags {
			for _, section := range sectionsFor(cmd, flag) {
				k.put(section, flag)
			}
		}
	}
	for key, flag := range k[topSection] {
		delete(k, key) // `hosts` is a key, and no section
		delete(k[""], flag.Names()[0])
	}
	return k
}

func sectionsFor(cmd *cli.Command, flag cli.Flag) []string {
	if !Has(flag, Site) {
		return []string{""}
	}
	var sections []string
	if !slices.ContainsFunc(cmd.Subcommands, takesHosts) { // else it would be theirs, too
		sections = append(sections, cmd.Name)
	}
	if Has(flag, Top) {
		sections = append(sections, topSection)
	}
	if Has(flag, Remote) {
		sections = append(sections, remoteSection)
	}
	return sections
}

func takesHosts(cmd *cli.Command) bool { return Takes(cmd, "hostfile") }

func (k configKeys) put(section string, flag cli.Flag) {
	key := flag.Names()[0]
	if key == "host" && section != "" {
		key = "hosts"
	}
	if k[section] == nil {
		k[section] = map[string]cli.Flag{}
	}
	k[section][key] = flag
}

// sections are those with a key, or all with "".
func (k configKeys) sections(key string) (sections []string) {
	for section, flags := range k {
		if _, ok := flags[key]; section != "" && (ok || key == "") {
			sections = append(sections, section)
		}
	}
	slices.Sort(sections)
	return sections
}

// ConfigKeys are the keys of a section; "" is the top of the file.
func ConfigKeys(commands []*cli.Command, section string) []string {
	if section == "" {
		section = topSection
	}
	return sorted(keysOf(commands)[section])
}

func sorted[V any](values map[string]V) []string { return slices.Sorted(maps.Keys(values)) }

func sectionTitle(section string) string {
	switch section {
	case topSection:
		return "all commands"
	case remoteSection:
		return "all commands of genv remote"
	}
	return "genv remote " + section
}

// refusal is why a flag can't be set here, if it can't.
func (k configKeys) refusal(name string) string {
	flag, ok := k[""][name]
	if !ok {
		return ""
	}
	reason := "it is about a single run"
	switch {
	case Has(flag, OfPolicy):
		return "it would override the policy file; write it into " + PolicyFile
	case Has(flag, Asked):
		reason = "it is asked for in a single run"
	case Has(flag, Output):
		reason = "programs that run genv rely on the default"
	}
	return fmt.Sprintf("%s; write --%s in the command line", reason, name)
}

// wordsOf reads the value of a flag. Whether it makes sense is checked where it is used, as if it were in the
// command line; but it must not depend on the folder in which genv is started.
func wordsOf(flag cli.Flag, n *strictyaml.Node) []string {
	switch Placeholder(flag.(cli.DocGenerationFlag)) { //nolint:forcetypeassert // as all flags
	case "HOSTS":
		return hostWords(n)
	case "FILE", "PATH", "DIR", "FOLDER":
		return pathWord(flag, n)
	}
	if _, many := flag.(*cli.StringSliceFlag); many {
		return wordList(n)
	}
	return oneWord(n)
}

func oneWord(n *strictyaml.Node) []string {
	text := n.Scalar()
	if text == "" {
		n.Failf("the value is empty; write it, or remove the line")
	}
	return []string{text}
}

// wordList is a word, or a list of words.
func wordList(n *strictyaml.Node) []string {
	if !n.IsList() {
		return oneWord(n)
	}
	var words []string
	n.List(func(item *strictyaml.Node) { words = append(words, oneWord(item)...) })
	return words
}

// hostWords is hosts as with -H.
func hostWords(n *strictyaml.Node) []string {
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

// pathWord is an absolute path.
func pathWord(flag cli.Flag, n *strictyaml.Node) []string {
	if n.IsText() && (n.Text() == ConfigOff && Has(flag, OrOff) || n.Text() == NoPolicy && Has(flag, OrNone)) {
		return []string{n.Text()}
	}
	words := oneWord(n)
	if words[0] != "" && !filepath.IsAbs(words[0]) {
		n.Failf("%q is not an absolute path; write one that begins with /", words[0])
	}
	return words
}
