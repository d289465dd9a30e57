package strictyaml

import (
	"maps"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Keys are the keys that a mapping may have, each with the reader of its value.
type Keys map[string]func(*Node)

// Map reads a mapping whose keys are known, in the order of the file. A key
// that is not known is an error that says which one may have been meant.
func (n *Node) Map(keys Keys) {
	if !n.want(mapping, "key: value") {
		return
	}
	for _, f := range n.fields {
		read, ok := keys[f.key.text]
		if !ok {
			f.key.Failf("unknown key %q; %s", f.key.text, hint(f.key.text, slices.Sorted(maps.Keys(keys))))
			continue
		}
		read(f.value)
	}
}

// Each reads a mapping whose keys are names of the writer's choice, in the
// order of the file.
func (n *Node) Each(read func(key, value *Node)) {
	if !n.want(mapping, "name: value") {
		return
	}
	for _, f := range n.fields {
		read(f.key, f.value)
	}
}

// List reads a list in its order.
func (n *Node) List(read func(*Node)) {
	if !n.want(list, "- item") {
		return
	}
	for _, item := range n.items {
		read(item)
	}
}

// OneOf is a text that must be one of several words.
func (n *Node) OneOf(words ...string) string {
	word := n.Text()
	if word == "" || slices.Contains(words, word) {
		return word
	}
	n.Failf("%s%q is not known here; %s", n.label(), word, hint(word, words))
	return ""
}

func hint(word string, known []string) string {
	return text.Hint(word, known, "known are "+strings.Join(known, ", "))
}
