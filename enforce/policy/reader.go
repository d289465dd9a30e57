package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// reader reads the parts of a file.
type reader struct {
	file *File
	doc  *strictyaml.Document
	zone *time.Location // nil if the file names none
}

func (r *reader) failed() bool { return r.doc.Err() != nil }

func (r *reader) readGroups(n *strictyaml.Node) {
	r.file.Groups = strictyaml.Groups{
		Members: r.readUser,
		Other:   r.group,
		Fold:    func(user string) string { return user }, // account names are case-sensitive
	}.Read(n)
}

// group is the users of a group.
func (r *reader) group(name string) ([]string, error) {
	if users, ok := r.file.Groups[name]; ok {
		return users, nil
	}
	hint := text.Hint(name, slices.Sorted(maps.Keys(r.file.Groups)), "add it there")
	return nil, fmt.Errorf("no such group in `groups:`; %s", hint)
}

// readUser reads the name of a user, as a list of one; nil if it isn't one.
func (r *reader) readUser(n *strictyaml.Node) []string {
	user := n.Text()
	err := text.CheckUsername(user)
	switch {
	case user == "":
		return nil
	case err != nil || user[0] == '@':
		n.Failf("%q is not a user name; write one name, or \"@group\"", user)
		return nil
	}
	return []string{string(r.file.Accounts.Name(snapshot.Username(user)))}
}

// readUserOrGroup reads the name of a user, or "@group" for the users of a group.
func (r *reader) readUserOrGroup(n *strictyaml.Node) (users []string, isGroup bool) {
	group, isGroup := strings.CutPrefix(n.Text(), "@")
	if !isGroup {
		return r.readUser(n), false
	}
	users, err := r.group(group)
	if err != nil {
		n.Failf("@%s: %v", group, err)
	}
	return users, true
}
