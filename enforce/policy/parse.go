package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Parse reads a policy file; name is for messages. Its error is a *strictyaml.ParseError, one line with the first
// problem and its place.
func Parse(name string, data []byte) (*File, error) { return ParseFor(name, data, nil) }

// ParseFor is Parse for these accounts.
func ParseFor(name string, data []byte, accounts Aliases) (*File, error) {
	r := readDocument(strictyaml.Parse(name, data), string(data), accounts)
	if err := r.doc.Err(); err != nil {
		return nil, err
	}
	return r.file, nil
}

// Check returns all problems of a policy file, one line for each, or nil.
func Check(name string, data []byte) error {
	doc := strictyaml.Parse(name, data)
	readDocument(doc, "", nil)
	return doc.All()
}

// Schema is the JSON Schema of a policy file.
func Schema() map[string]any {
	return strictyaml.Describe(func(doc *strictyaml.Document) { readDocument(doc, "", nil) })
}

// Parts are read in the order in which they refer to each other.
func readDocument(doc *strictyaml.Document, text string, accounts Aliases) *reader {
	r := &reader{file: Default(), doc: doc}
	r.file.Accounts, r.file.text = accounts, text
	parts := []struct {
		key  string
		read func(*strictyaml.Node)
	}{
		{"timezone", r.readZone},
		{"groups", r.readGroups},
		{"schedules", r.readSchedules},
		{"defaults", func(n *strictyaml.Node) { r.readSettings(n, &r.file.Defaults, 0, "defaults") }},
		{"overrides", func(n *strictyaml.Node) { n.List(r.readOverride) }},
		{"caps", func(n *strictyaml.Node) { n.List(r.readCap) }},
		{"reservations", func(n *strictyaml.Node) { n.List(r.readReservation) }},
		{"exempt", r.readExempt},
		{"unprotected", r.readUnprotected},
		{"limits", r.readLimits},
		{"contact", func(n *strictyaml.Node) { r.file.OfFleet.Contact = n.Text() }},
		{"hooks", func(n *strictyaml.Node) { n.List(r.readHook) }},
		{"mail", r.readMail},
	}
	nodes := map[string]*strictyaml.Node{}
	keys := r.fleetKeys(fleetSettings, "the file")
	for _, part := range parts {
		keys[part.key] = func(n *strictyaml.Node) { nodes[part.key] = n }
	}
	r.doc.Root().Map(keys, misplaced(), strictyaml.Keys{
		"fair-share": r.ignore("fair-share", useSchedules),
		"templates":  r.ignore("templates", "use `contact:` to say who to ask, or a hook for texts of your own"),
	})
	for _, part := range parts {
		if n := nodes[part.key]; n != nil {
			part.read(n)
		}
	}
	if m := r.file.Mail; m != nil {
		contact := &r.file.OfFleet.Contact
		*contact = cmp.Or(*contact, m.Contact, m.ReplyTo)
		m.Contact = cmp.Or(m.Contact, *contact)
	}
	slices.SortStableFunc(r.file.References, func(a, b Reference) int {
		return cmp.Or(cmp.Compare(a.Place.Line, b.Place.Line), cmp.Compare(a.Place.Column, b.Place.Column))
	})
	return r
}

func (r *reader) fleetKeys(settings []strictyaml.Setting[enforce.Fleet], by string) strictyaml.Keys {
	keys := strictyaml.Keys{}
	for _, s := range settings {
		keys[s.Key] = func(n *strictyaml.Node) {
			s.Read(&r.file.OfFleet, n)
			r.file.fleetFrom[s.Key] = Source{n.Place(), by}
		}
	}
	return keys
}

func (r *reader) readLimits(n *strictyaml.Node) {
	earlier := strictyaml.Keys{}
	for _, suffix := range []string{"", "-per-user", "-per-host"} {
		earlier["max-percent"+suffix] = r.ignore("max-percent"+suffix, "use max-terminations"+suffix+", a number")
	}
	n.Map(r.fleetKeys(limitSettings, "limits"), earlier)
}

// useSchedules is what to use instead of extend and fair-share.
const useSchedules = "use overrides with a schedule, or genv remote exempt --for"

// The rest of the file applies: without a policy enforcement would stop.
func (r *reader) ignore(key, instead string) func(*strictyaml.Node) {
	return func(n *strictyaml.Node) {
		r.file.Ignored = append(r.file.Ignored, Warning{n.Place(), "key", key, fmt.Sprintf(
			"%s is ignored, and the next version refuses it: remove it, and %s", key, instead)})
	}
}

type reader struct {
	file *File
	doc  *strictyaml.Document
	zone *time.Location // nil if the file names none
}

func (r *reader) readGroups(n *strictyaml.Node) {
	r.file.Groups = strictyaml.GroupReader{
		Members: r.readUser,
		Other:   r.group,
		Fold:    func(user string) string { return user }, // account names are case-sensitive
	}.Read(n)
}

func (r *reader) group(name string) ([]string, error) {
	if users, ok := r.file.Groups[name]; ok {
		return users, nil
	}
	hint := text.Hint(name, slices.Sorted(maps.Keys(r.file.Groups)), "add it there")
	return nil, fmt.Errorf("no such group in `groups:`; %s", hint)
}

func (r *reader) readUser(n *strictyaml.Node) []string {
	return r.readUserName(n, n.Text())
}

// user is the text of n, or a part of it.
func (r *reader) readUserName(n *strictyaml.Node, user string) []string {
	err := text.CheckUsername(user)
	switch {
	case user == "":
		return nil
	case user[0] == '%':
		n.Failf("%q: Unix groups are for caps and reservations alone; write one name, or \"@group\"", user)
		return nil
	case err != nil || strings.ContainsAny(user[:1], "@!*"):
		n.Failf("%q is not a user name; write one name, or \"@group\"", user)
		return nil
	}
	r.refers(n, Reference{Kind: ToUser, Name: user})
	return []string{string(r.file.Accounts.Name(snapshot.Username(user)))}
}

func (r *reader) readUserOrGroup(n *strictyaml.Node) (users []string, isGroup bool) {
	group, isGroup := strings.CutPrefix(n.Text(), "@")
	if !isGroup {
		return r.readUser(n), false
	}
	return r.readGroup(n, group), true
}

func (r *reader) readGroup(n *strictyaml.Node, group string) []string {
	users, err := r.group(group)
	if err != nil {
		n.Failf("@%s: %v", group, err)
	}
	return users
}

// Reference is a name of an account, or of a host or label of the inventory, in a policy.
type Reference struct {
	Kind  string // ToUser and so on
	Name  string // of a label its key
	Value string // of a label
	Place strictyaml.Place
}

// The kinds of references.
const (
	ToUser      = "user"
	ToHost      = "host" // may have ranges, or be a group as @name
	ToLabel     = "label"
	ToUnixGroup = "group" // of the directory
	ToModel     = "model" // a glob of names of GPUs
)

func (r *reader) refers(n *strictyaml.Node, to Reference) {
	to.Place = n.Place()
	r.file.References = append(r.file.References, to)
}
