package strictyaml

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/xrash/smetrics"
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
			f.key.Failf("unknown key %q; %s", f.key.text, suggestion(f.key.text, slices.Sorted(maps.Keys(keys))))
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
	text := n.Text()
	if text == "" || slices.Contains(words, text) {
		return text
	}
	n.Failf("%s%q is not known here; %s", n.label(), text, suggestion(text, words))
	return ""
}

func suggestion(word string, known []string) string {
	if near := Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "known are " + strings.Join(known, ", ")
}

// Nearest is the known word that a misspelt one is most likely to mean, or "".
// Of several that are equally near it is the first.
func Nearest(word string, known []string) string {
	limit := 1
	if len(word) > 3 {
		limit = max(2, len(word)/3) // 2 is two letters swapped
	}
	best, nearest := limit+1, ""
	for _, k := range known {
		if len(k)-len(word) >= best || len(word)-len(k) >= best {
			continue // the distance is at least the difference in length
		}
		if d := smetrics.WagnerFischer(strings.ToLower(word), strings.ToLower(k), 1, 1, 1); d < best {
			best, nearest = d, k
		}
	}
	return nearest
}
