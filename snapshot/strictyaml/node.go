package strictyaml

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Node is a value in a document. Methods for other types record an error and return zero.
type Node struct {
	in      *Document
	place   Place
	kind    kind
	key     string // the key of the value, for messages; empty in a list
	example string // of a mapping, for messages; empty for a general one
	text    string // of a word, number or bool
	items   []*Node
	fields  []field
	shape   *shape // of a sample for Describe; nil for a value in a file
}

type field struct{ key, value *Node }

// Place is where the value begins.
func (n *Node) Place() Place { return n.place }

// Failf records an error at the value. The message says what is wrong and how to correct it.
func (n *Node) Failf(format string, args ...any) {
	if n.shape != nil {
		n.shape.failed = true
		return
	}
	n.in.failf(n.place, format, args...)
}

func (n *Node) failf(format string, args ...any) {
	if n.key != "" {
		format, args = "%s: "+format, append([]any{n.key}, args...)
	}
	n.Failf(format, args...)
}

// IsMap says whether the value is a mapping.
func (n *Node) IsMap() bool { return n.kind == mapping }

// IsList says whether the value is a list.
func (n *Node) IsList() bool { return n.kind == list }

// IsText says whether the value is text, quoted or plain.
func (n *Node) IsText() bool { return n.kind == word }

// IsBool says whether the value is true or false.
func (n *Node) IsBool() bool { return n.kind == boolean }

func (n *Node) want(k kind, example string) bool {
	switch ok := n.take(n.kind == k); {
	case ok, n.kind == absent: // absent has its error already
	case n.kind == lines:
		n.refuse(notOneLine)
	default:
		if k == mapping {
			example = cmp.Or(n.example, example)
		}
		n.failf("expected %s, as in `%s`, but found %s", kindNames[k], example, n.describe())
	}
	return n.kind == k
}

func (n *Node) describe() string {
	switch n.kind {
	case word, number:
		return fmt.Sprintf("%s %q", kindNames[n.kind], n.text)
	case boolean:
		return n.text
	default:
		return kindNames[n.kind]
	}
}

// Text returns a text that must not be empty.
func (n *Node) Text() string {
	if n.kind == number || n.kind == boolean {
		n.take(false)
		n.failf("expected text, but found %s; put it in quotes", n.describe())
		return ""
	}
	if n.want(word, "word") && n.text == "" {
		n.failf("the text is empty; write it, or remove the line")
	}
	return n.text
}

// Scalar returns a text, number or bool as written. It may be empty.
func (n *Node) Scalar() string {
	if !n.take(n.kind == number || n.kind == boolean || n.kind == word) {
		n.want(word, "word")
	}
	return n.text
}

// Bool accepts only true and false, none of YAML's other names.
func (n *Node) Bool() bool { return n.want(boolean, "true") && n.text == "true" }

// Int returns a whole decimal number from low to high.
func (n *Node) Int(low, high int) int {
	if !n.want(number, strconv.Itoa(max(low, 0))) ||
		n.detail(map[string]any{"type": "integer", "minimum": low, "maximum": high}) {
		return 0
	}
	i, err := strconv.Atoi(n.text) // 010 is 10, not octal
	if err != nil || i < low || i > high {
		n.failf("%s is not a whole number from %d to %d", n.text, low, high)
		return 0
	}
	return i
}

// Duration returns a duration from low to high, by text.ParseDuration: 10s, 15m, 1h30m, 7d, or seconds.
func (n *Node) Duration(low, high time.Duration) time.Duration {
	if n.kind != number && !n.want(word, "10s") || n.describeDuration(low, high) {
		return 0
	}
	d, err := text.ParseDuration(n.text)
	if err != nil {
		n.failf("%v", err)
		return 0
	}
	if d < low || d > high {
		n.failf("%s is not from %s to %s", n.text, text.FormatDuration(low), text.FormatDuration(high))
		return 0
	}
	return d
}

type kind int

const (
	absent  kind = iota // no or a refused value
	null                // a key without a value
	boolean             // true or false
	number              // as it is written
	word                // quoted or plain text
	lines               // text over several lines
	list
	mapping
)

var kindNames = [...]string{
	"nothing", "nothing", "true or false", "a number", "text", "text over several lines",
	"a list", "a mapping",
}

// Keys has the keys of a mapping, each with a function that reads its value.
type Keys map[string]func(*Node)

// Map reads a mapping with fixed keys in the order of the file. An error about an unknown key suggests one of keys,
// never of earlier, which earlier versions had.
func (n *Node) Map(keys Keys, earlier ...Keys) {
	if !n.want(mapping, "key: value") {
		return
	}
	n.addSamples(keys, false)
	for _, more := range earlier {
		n.addSamples(more, true)
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

// Cut returns the value of a key, nil for none, and the mapping without it, nil if it is empty.
func (n *Node) Cut(key string) (value, rest *Node) {
	n.addSamples(Keys{key: nil}, false)
	i := slices.IndexFunc(n.fields, func(f field) bool { return f.key.text == key })
	if i < 0 {
		return nil, n
	}
	if len(n.fields) > 1 || n.shape != nil {
		without := *n
		without.fields = slices.Delete(slices.Clone(n.fields), i, i+1)
		rest = &without
	}
	return n.fields[i].value, rest
}

// Each reads a mapping with any keys, in the order of the file.
func (n *Node) Each(read func(key, value *Node)) {
	n.want(mapping, "name: value")
	n.addSample(func(s *shape) **shape { return &s.values })
	for _, f := range n.fields {
		read(f.key, f.value)
	}
}

// List reads a list in its order.
func (n *Node) List(read func(*Node)) {
	n.want(list, "- item")
	n.addSample(func(s *shape) **shape { return &s.items })
	for _, item := range n.items {
		read(item)
	}
}

// OneOf returns a text that must be one of several words.
func (n *Node) OneOf(words ...string) string {
	n.describeWords(words)
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

// Setting is a value in an S: its key, and how a file has it.
type Setting[S any] struct {
	Key  string
	Read func(*S, *Node)
	Text func(*S) string
	Copy func(to, from *S)
}

// NewSetting makes a setting that `false` switches off: then it is the zero T.
func NewSetting[S any, T comparable](key string, at func(*S) *T, example string, read func(*Node) T,
	write func(T) string,
) Setting[S] {
	var off T
	return Setting[S]{
		Key: key,
		Read: func(s *S, n *Node) {
			switch *at(s) = off; {
			case !n.IsBool():
				n.example = key + ": " + example
				*at(s) = read(n)
			case !n.take(n.text == "false"):
				n.Failf("%s: true does not say how; write %s, or false for none", key, example)
			}
		},
		Text: func(s *S) string {
			if *at(s) == off {
				return "off"
			}
			return write(*at(s))
		},
		Copy: func(to, from *S) { *at(to) = *at(from) },
	}
}

// NewOptional makes a setting for which the zero T is a value, too: nil is off.
func NewOptional[S, T any](key string, at func(*S) **T, example string, read func(*Node) T,
	write func(T) string,
) Setting[S] {
	return NewSetting(key, at, example,
		func(n *Node) *T { value := read(n); return &value }, func(value *T) string { return write(*value) })
}

// NewDuration makes a setting of a duration within limits.
func NewDuration[S any](key string, at func(*S) *time.Duration, example string, low, high time.Duration) Setting[S] {
	return NewSetting(key, at, example, func(n *Node) time.Duration { return n.Duration(low, high) },
		text.FormatDuration)
}

// NewSwitch makes a setting that is on or off.
func NewSwitch[S any](key string, at func(*S) *bool) Setting[S] {
	s := NewSetting(key, at, "", nil, func(bool) string { return "on" })
	s.Read = func(s *S, n *Node) { *at(s) = n.Bool() }
	return s
}

// NewChoice makes a setting with two words, of which the first is true.
func NewChoice[S any](key, on, off string, at func(*S) *bool) Setting[S] {
	s := NewSwitch(key, at)
	s.Read = func(s *S, n *Node) { *at(s) = n.OneOf(on, off) == on }
	s.Text = func(s *S) string {
		if *at(s) {
			return on
		}
		return off
	}
	return s
}

// GroupReader reads a mapping of group names to lists of words and, after an @, other groups in any order, but without
// cycles.
type GroupReader struct {
	// Members returns the members in an item without @. It records its errors at the item.
	Members func(item *Node) []string
	// Other returns the members of a group outside the mapping, or an error that ends with the next step.
	Other func(name string) ([]string, error)
	// Fold normalises a member for comparison. Each is in a group once.
	Fold func(member string) string

	written map[string]*Node
	done    map[string][]string
	path    []string // the groups in resolution, outermost first
}

// Read returns the members of each group in a mapping.
func (g GroupReader) Read(n *Node) map[string][]string {
	g.written, g.done = map[string]*Node{}, map[string][]string{}
	var order []string
	n.Each(func(key, value *Node) {
		name := strings.TrimPrefix(key.Text(), "@")
		switch {
		case !text.IsMadeOf(name, "-_.") || name == "" || name[0] == '-':
			key.Failf("%q is not a valid group name; use letters, digits, '-', '_' and '.'", name)
		case g.written[name] != nil:
			key.Failf("group %s is defined twice; remove one of the definitions", name)
		default:
			g.written[name] = value
			order = append(order, name)
		}
	})
	for _, name := range order {
		g.resolve(name)
	}
	return g.done
}

func (g *GroupReader) resolve(name string) {
	if _, done := g.done[name]; done {
		return
	}
	g.path = append(g.path, name)
	var members []string
	seen := map[string]bool{}
	g.written[name].List(func(item *Node) {
		for _, member := range g.membersOf(item) {
			if key := g.Fold(member); !seen[key] {
				seen[key] = true
				members = append(members, member)
			}
		}
	})
	g.done[name] = members
	g.path = g.path[:len(g.path)-1]
}

func (g *GroupReader) membersOf(item *Node) []string {
	name, ok := strings.CutPrefix(item.Text(), "@")
	if !ok {
		return g.Members(item)
	}
	if slices.Contains(g.path, name) {
		cycle := append(slices.Clone(g.path), name)
		item.Failf("group %s contains itself: %s; remove one of these", name, strings.Join(cycle, " > "))
		return nil
	}
	if _, ok := g.written[name]; ok {
		g.resolve(name)
		return g.done[name]
	}
	members, err := g.Other(name)
	if err != nil {
		item.Failf("@%s: %v", name, err)
	}
	return members
}
