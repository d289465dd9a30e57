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

const (
	topSection    = "(top)"
	remoteSection = "remote"
)

// InConfig is how config.yaml treats a flag; 0 for a flag about a single run.
type InConfig uint

const (
	Site        InConfig = 1 << iota // a key in the section of each command with the flag
	OrOff                            // `off` in place of a path
	OrNone                           // `none` in place of a path
	Asked                            // no key: for a single run
	OfPolicy                         // no key: policy.yaml sets it
	Output                           // no key: programs rely on the default
	top                              // also a key at the top of the file
	underRemote                      // also a key under `remote:`
	shared                           // the value under `enforce:` is the default
	loop                             // not applied in a dry run or a single cycle
	record                           // not applied in a dry run
	connection                       // on the help page that many commands share

	Top        = Site | top
	Shared     = Site | shared
	Loop       = Site | loop
	Record     = Top | shared | record // the log of a controller
	OfFleet    = Site | top | underRemote
	Connection = OfFleet | connection
	AskedToo   = Asked | connection
)

// configKeys are by section and key. Section "" has flags that config.yaml may not set.
type configKeys map[string]map[string]*Flag

func configKeysOf(commands []*cli.Command) configKeys {
	k := configKeys{}
	for _, cmd := range commands {
		for _, f := range own(cmd.Flags) {
			for _, section := range sectionsFor(cmd, f) {
				key := f.names[0]
				if key == "host" && section != "" {
					key = "hosts"
				}
				if k[section] == nil {
					k[section] = map[string]*Flag{}
				}
				k[section][key] = f
			}
		}
	}
	for key, flag := range k[topSection] {
		delete(k, key) // `hosts` is a key, not a section
		delete(k[""], flag.names[0])
	}
	return k
}

func sectionsFor(cmd *cli.Command, flag *Flag) []string {
	if flag.keys&Site == 0 {
		return []string{""}
	}
	var sections []string
	takesHosts := func(cmd *cli.Command) bool { return Takes(cmd, "hostfile") }
	if !slices.ContainsFunc(cmd.Subcommands, takesHosts) { // else it would apply to them as well
		sections = append(sections, cmd.Name)
	}
	if flag.keys&top != 0 {
		sections = append(sections, topSection)
	}
	if flag.keys&underRemote != 0 {
		sections = append(sections, remoteSection)
	}
	return sections
}

// sections are all if the key is "".
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
	return sorted(configKeysOf(commands)[section])
}

func sorted[V any](values map[string]V) []string { return slices.Sorted(maps.Keys(values)) }

// ConfigSchema is the JSON Schema of a config.yaml, with the help of the flags.
func ConfigSchema(commands []*cli.Command) map[string]any {
	known := configKeysOf(commands)
	keysOf := func(section string) strictyaml.Keys {
		keys := strictyaml.Keys{}
		for key, flag := range known[section] {
			keys[key] = func(n *strictyaml.Node) {
				n.Describe(strings.ReplaceAll(flag.usage, "`", ""))
				if wordsOf(flag, n); len(flag.choices) > 0 && !flag.isList {
					n.OneOf(flag.choices...)
				}
			}
		}
		return keys
	}
	return strictyaml.Describe(func(doc *strictyaml.Document) {
		keys := keysOf(topSection)
		keys[accountKey] = func(n *strictyaml.Node) { oneWord(n) }
		for _, section := range known.sections("") {
			if section != topSection {
				keys[section] = func(n *strictyaml.Node) { n.Map(keysOf(section)) }
			}
		}
		doc.Root().Map(keys)
	})
}

// refusal is empty if a flag can be set here.
func (k configKeys) refusal(name string) string {
	flag, ok := k[""][name]
	if !ok {
		return ""
	}
	reason := "it is about a single run"
	switch {
	case flag.keys&OfPolicy != 0:
		return "it would override the policy file; write it into " + PolicyFile
	case flag.keys&Asked != 0:
		reason = "it is asked for in a single run"
	case flag.keys&Output != 0:
		reason = "programs that run genv rely on the default"
	}
	return fmt.Sprintf("%s; write --%s in the command line", reason, name)
}

// wordsOf reads the value of a flag, which is checked at its use. Paths are absolute, to be independent of the working
// directory.
func wordsOf(flag *Flag, n *strictyaml.Node) []string {
	switch flag.placeholder() {
	case "HOSTS":
		return hostWords(n)
	case "FILE", "PATH", "DIR", "FOLDER":
		return pathWord(flag, n)
	}
	if flag.isList {
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

func wordList(n *strictyaml.Node) []string {
	if !n.IsList() {
		return oneWord(n)
	}
	var words []string
	n.List(func(item *strictyaml.Node) { words = append(words, oneWord(item)...) })
	return words
}

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

func pathWord(flag *Flag, n *strictyaml.Node) []string {
	off, none := n.Text() == ConfigOff && flag.keys&OrOff != 0, n.Text() == NoPolicy && flag.keys&OrNone != 0
	if n.IsText() && (off || none) {
		return []string{n.Text()}
	}
	words := oneWord(n)
	if words[0] != "" && !filepath.IsAbs(words[0]) {
		n.Failf("%q is not an absolute path; write one that begins with /", words[0])
	}
	return words
}
