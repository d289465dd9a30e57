package strictyaml

import (
	"maps"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Keys are the keys that a mapping may have, each with a function that reads its value.
type Keys map[string]func(*Node)

// Map reads a mapping with fixed keys, in the order of the file. Another key is an
// error, which suggests a valid one, but none of those that are read only because earlier files have them.
func (n *Node) Map(keys Keys, earlier ...Keys) {
	if !n.want(mapping, "key: value") {
		return
	}
	for _, f := range n.fields {
		read, ok := keys[f.key.text]
		for _, more := range earlier {
			if !ok {
				read, ok = more[f.key.text]
			}
		}
		if !ok {
			f.key.Failf("unknown key %q; %s", f.key.text, hint(f.key.text, slices.Sorted(maps.Keys(keys))))
			continue
		}
		read(f.value)
	}
}

// Each reads a mapping with any keys, in the order of the file.
func (n *Node) Each(read func(key, value *Node)) {
	n.want(mapping, "name: value")
	for _, f := range n.fields {
		read(f.key, f.value)
	}
}

// List reads a list in its order.
func (n *Node) List(read func(*Node)) {
	n.want(list, "- item")
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
	n.failf("unknown value %q; %s", word, hint(word, words))
	return ""
}

func hint(word string, valid []string) string {
	return text.Hint(word, valid, "use one of "+strings.Join(valid, ", "))
}
