package configfile

import (
	"bytes"
	"slices"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Value is the default of a flag in a config.yaml.
type Value struct {
	Flag  string
	Words []string // several only for a flag that may be repeated
	Place strictyaml.Place
}

// File is a config.yaml.
type File struct {
	// sections are the values by section; "" is the top of the file.
	sections map[string][]Value
}

// Parse reads a config.yaml; name is for messages. Its error is a *strictyaml.ParseError,
// one line with the first problem and its place. A file of comments alone has no values.
func Parse(name string, data []byte) (*File, error) {
	file := &File{sections: map[string][]Value{}}
	if isEmpty(data) {
		return file, nil
	}
	doc := strictyaml.Parse(name, data)
	known := settings()
	doc.Root().Each(func(key, value *strictyaml.Node) {
		switch section := key.Text(); {
		case slices.Contains(sectionNames(), section):
			value.Each(func(key, value *strictyaml.Node) { file.read(known, section, key, value) })
		default:
			file.read(known, top, key, value)
		}
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
func (f *File) read(known []setting, section string, key, value *strictyaml.Node) {
	name := key.Text()
	s := find(known, name, section)
	switch {
	case name == "":
	case s != nil:
		f.sections[section] = append(f.sections[section], Value{Flag: s.flag(), Words: s.read(value), Place: key.Place()})
	case refusal(name) != "":
		key.Failf("%s can't be set here: %s", name, refusal(name))
	case find(known, name, "") != nil:
		key.Failf("%s is not a flag of %s; write it under %s", name, sectionTitle(section), text.Shorten(sectionsOf(known, name), 200))
	default:
		var names []string
		for _, s := range known {
			if s.isIn(section) {
				names = append(names, s.key)
			}
		}
		if section == top {
			names = append(names, sectionNames()...)
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
