package configfile

import (
	"bytes"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Value is the default of a flag in a config.yaml.
type Value struct {
	Flag  string
	short string   // its name of one letter, if it has one
	Words []string // several only for a flag that may be repeated
	Place strictyaml.Place
}

// File is a config.yaml.
type File struct {
	// sections are the values by section; "" is the top of the file.
	sections map[string][]Value
}

// Parse reads a config.yaml, which may set flags of the commands below `genv remote`; name is for
// messages. Its error is a *strictyaml.ParseError,
// one line with the first problem and its place. A file of comments alone has no values.
func Parse(name string, data []byte, commands []*cli.Command) (*File, error) {
	file := &File{sections: map[string][]Value{}}
	if isEmpty(data) {
		return file, nil
	}
	doc := strictyaml.Parse(name, data)
	known := keysOf(commands)
	doc.Root().Each(func(key, value *strictyaml.Node) {
		section := key.Text()
		if known[section] == nil || section == "" {
			file.read(known, top, key, value)
			return
		}
		value.Each(func(key, value *strictyaml.Node) { file.read(known, section, key, value) })
	})
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return file, nil
}

// isEmpty says whether there are only comments.
func isEmpty(data []byte) bool {
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\uFEFF"))); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// read reads a value of a section.
func (f *File) read(known keys, section string, key, value *strictyaml.Node) {
	name := key.Text()
	flag, ok := known[section][name]
	switch {
	case name == "":
	case ok:
		v := Value{Flag: flag.Names()[0], Words: words(flag, value), Place: key.Place()}
		if i := slices.IndexFunc(flag.Names(), func(name string) bool { return len(name) == 1 }); i >= 0 {
			v.short = flag.Names()[i]
		}
		f.sections[section] = append(f.sections[section], v)
	case command.Instead(name) != "":
		key.Failf("unknown key %q: %s", name, command.Instead(name))
	case known.refusal(name) != "":
		key.Failf("%s can't be set here: %s", name, known.refusal(name))
	case len(known.sections(name)) > 0:
		sections := "`" + strings.Join(known.sections(name), ":`, `") + ":`"
		key.Failf("%s is not a flag of %s; write it under %s", name, sectionTitle(section), text.Shorten(sections, 200))
	default:
		names := sorted(known[section])
		if section == top {
			names = append(names, known.sections("")...)
		}
		key.Failf("unknown key %q; %s", name, text.Hint(name, names, "`genv remote --help` lists the flags"))
	}
}

// merge are the values for a command: of files, the first one first, and of sections, the
// command's own one first. `install` takes hosts from its own section alone: hosts that are
// named for the others must not become those that it changes.
func merge(files []*File, sections []string) map[string]Value {
	values := map[string]Value{}
	for _, file := range slices.Backward(files) {
		for _, section := range slices.Backward(sections) {
			list := file.sections[section]
			if slices.ContainsFunc(list, namesHosts) {
				delete(values, "host") // which hosts there are is said in one place
				delete(values, "hostfile")
			}
			for _, v := range list {
				if namesHosts(v) && sections[0] == "install" && section != "install" {
					continue
				}
				values[v.Flag] = v
			}
		}
	}
	return values
}

func namesHosts(v Value) bool { return v.Flag == "host" || v.Flag == "hostfile" }
