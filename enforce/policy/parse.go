package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/hostpattern"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// Parse reads a policy file; name is for messages and sources. Its error is a
// *strictyaml.Error, one line with the first thing that is wrong and its place.
func Parse(name string, data []byte) (*File, error) {
	file, doc := parse(name, data)
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return file, nil
}

// Check is everything that is wrong with a policy file, one line for each, or
// nil.
func Check(name string, data []byte) error {
	_, doc := parse(name, data)
	return doc.All()
}

// reader reads the parts of a file, which refer to each other.
type reader struct {
	file *File
	doc  *strictyaml.Document
	zone *time.Location // nil if the file names none
}

func (r *reader) failed() bool { return r.doc.Err() != nil }

// parse reads the parts in the order in which they refer to each other,
// whatever their order in the file.
func parse(name string, data []byte) (*File, *strictyaml.Document) {
	r := reader{file: Default(), doc: strictyaml.Parse(name, data)}
	parts := []struct {
		key  string
		read func(*strictyaml.Node)
	}{
		{"timezone", r.readZone},
		{"groups", r.readGroups},
		{"schedules", r.readSchedules},
		{"defaults", func(n *strictyaml.Node) { readSettings(n, &r.file.Defaults, 0, "defaults") }},
		{"overrides", func(n *strictyaml.Node) { n.List(r.readOverride) }},
		{"exempt", r.readExempt},
		{"unprotected", r.readUnprotected},
		{"limits", r.readLimits},
		{"unreachable", r.readUnreachable},
		{"tell-users", r.readTellUsers},
		{"hooks", func(n *strictyaml.Node) { n.List(r.readHook) }},
	}
	nodes := map[string]*strictyaml.Node{}
	keys := strictyaml.Keys{}
	for _, part := range parts {
		keys[part.key] = func(n *strictyaml.Node) { nodes[part.key] = n }
	}
	r.doc.Root().Map(keys)
	for _, part := range parts {
		if n := nodes[part.key]; n != nil {
			part.read(n)
		}
	}
	if n := nodes["overrides"]; n != nil && !r.failed() {
		r.checkOverlaps(n)
	}
	return r.file, r.doc
}

func (r *reader) readGroups(n *strictyaml.Node) {
	r.file.Groups = strictyaml.Groups{
		Members: func(item *strictyaml.Node) []string {
			if user, ok := readUser(item); ok {
				return []string{user}
			}
			return nil
		},
		Other: r.group,
		Fold:  func(user string) string { return user }, // account names are case-sensitive
	}.Read(n)
}

// group is the users of a group.
func (r *reader) group(name string) ([]string, error) {
	if users, ok := r.file.Groups[name]; ok {
		return users, nil
	}
	known := slices.Sorted(maps.Keys(r.file.Groups))
	if near := strictyaml.Nearest(name, known); near != "" {
		return nil, fmt.Errorf("there is no such group in `groups:`; did you mean @%s?", near)
	}
	return nil, fmt.Errorf("there is no such group in `groups:`; add it there")
}

// readUser reads the name of a user.
func readUser(n *strictyaml.Node) (string, bool) {
	user := n.Text()
	if strings.ContainsAny(user, " ,:/@") {
		n.Failf("%q is no user name; write one name, or \"@group\"", user)
		return "", false
	}
	return user, user != ""
}

// readUsers reads a list of users and groups: the users that are named, those
// that are meant by a group, and the words of both.
func (r *reader) readUsers(n *strictyaml.Node) (users, members, words []string) {
	n.List(func(item *strictyaml.Node) {
		group, ok := strings.CutPrefix(item.Text(), "@")
		if !ok {
			if user, ok := readUser(item); ok {
				users, words = append(users, user), append(words, user)
			}
			return
		}
		more, err := r.group(group)
		if err != nil {
			item.Failf("@%s: %v", group, err)
		}
		members, words = append(members, more...), append(words, "@"+group)
	})
	return users, members, words
}

// readHosts reads a list of host patterns.
func (r *reader) readHosts(n *strictyaml.Node) (hosts []hostpattern.Pattern, words []string) {
	n.List(func(item *strictyaml.Node) {
		if text := item.Text(); text != "" {
			p, err := hostpattern.Parse(text)
			if err != nil {
				item.Failf("%v", err)
			}
			hosts, words = append(hosts, p), append(words, text)
		}
	})
	return hosts, words
}

func (r *reader) readLimits(n *strictyaml.Node) {
	keys := strictyaml.Keys{
		"over-limit": func(n *strictyaml.Node) {
			throttle := n.OneOf("hold", "throttle") == "throttle"
			r.file.Limits.Throttle = Value[bool]{On: throttle, Value: throttle, From: Source{n.Place(), "limits"}}
		},
	}
	for _, limit := range r.file.Limits.each() {
		keys[limit.key] = func(n *strictyaml.Node) {
			v := n.Int(0, limit.high)
			*limit.at = Value[int]{On: v > 0, Value: v, From: Source{n.Place(), "limits"}}
		}
	}
	n.Map(keys)
}

func (r *reader) readUnreachable(n *strictyaml.Node) {
	way := Unreachable(n.OneOf(string(IgnoreMissing), string(PauseCaps)))
	r.file.Unreachable = Value[Unreachable]{On: true, Value: way, From: Source{n.Place(), "the file"}}
}

func (r *reader) readTellUsers(n *strictyaml.Node) {
	on := n.Bool()
	r.file.TellUsers = Value[bool]{On: on, Value: on, From: Source{n.Place(), "the file"}}
}
