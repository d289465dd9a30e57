package strictyaml

import (
	"maps"
	"regexp"
	"slices"
	"time"
)

// Describe returns the JSON Schema (draft-07) of the documents that read reads, for editors. It calls read several
// times, with all known keys in each mapping and every kind at each value in turn, and omits keys that read refuses
// unread.
func Describe(read func(*Document)) map[string]any {
	root := &shape{at: len(samples) - 1} // a mapping
	for more := true; more; more = root.advance() {
		d := new(Document)
		d.root = root.node(d)
		read(d)
	}
	schema := root.schema()
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	return schema
}

// samples are the values at each place, in turn. Mappings are last: a finished place has a mapping with all its keys
// while others are still explored.
var samples = [...]struct {
	kind kind
	text string
	name string // of the type in a schema
}{
	{boolean, "false", "boolean"},
	{boolean, "true", "boolean"},
	{number, "", "number"},
	{word, "", "string"},
	{list, "", "array"},
	{mapping, "", "object"},
}

const anyKey = "any-key" // in a sample of a mapping with any keys

// shape is what is known so far about a place in Describe's documents.
type shape struct {
	at          int // the sample in the next document
	samples     [len(samples)]struct{ taken, refused bool }
	details     [len(samples)]map[string]any // keywords for an accepted sample besides its type
	failed      bool                         // an error was recorded
	earlier     bool                         // the key is only for earlier versions
	description string
	items       *shape            // of a list
	values      *shape            // of a mapping with any keys
	keys        map[string]*shape // of a mapping with fixed keys
}

func (s *shape) node(in *Document) *Node {
	return &Node{in: in, kind: samples[s.at].kind, text: samples[s.at].text, shape: s}
}

func (s *shape) advance() bool {
	more := false
	for _, child := range append(slices.Collect(maps.Values(s.keys)), s.items, s.values) {
		more = child != nil && child.advance() || more
	}
	if !more && s.at+1 < len(samples) {
		s.at++
		more = true
	}
	return more
}

// take notes whether a reader accepts the value, and returns that.
func (n *Node) take(ok bool) bool {
	if n.shape != nil {
		sample := &n.shape.samples[n.shape.at]
		sample.taken, sample.refused = true, sample.refused || !ok
	}
	return ok
}

// detail notes a schema's keywords for an accepted value, and reports whether this is a description.
func (n *Node) detail(about map[string]any) bool {
	if n.take(true); n.shape != nil {
		n.shape.details[n.shape.at] = about
	}
	return n.shape != nil
}

// Describe sets the value's description in the schema.
func (n *Node) Describe(text string) {
	if n.shape != nil {
		n.shape.description = text
	}
}

// Matches reports whether the value is text that matches. In a description all text does.
func (n *Node) Matches(pattern *regexp.Regexp) bool {
	if n.kind == word && n.detail(map[string]any{"pattern": pattern.String()}) {
		return true
	}
	return n.kind == word && pattern.MatchString(n.text)
}

func (n *Node) describeDuration(low, high time.Duration) bool {
	// the syntax of text.ParseDuration
	const durationPattern = `^([0-9]+d)?(([0-9.]+(ns|us|µs|μs|ms|s|m|h))*|0)$|^[0-9.]+$`
	if n.kind == number {
		return n.detail(map[string]any{"minimum": low.Seconds(), "maximum": high.Seconds()})
	}
	return n.detail(map[string]any{"pattern": durationPattern})
}

// describeWords ignores words that are names in the file.
func (n *Node) describeWords(words []string) {
	if n.kind == word && len(words) > 0 && !slices.Contains(words, anyKey) {
		n.detail(map[string]any{"enum": words})
	}
}

func (n *Node) addSamples(keys Keys, earlier bool) {
	s := n.shape
	if s == nil || n.kind != mapping {
		return
	}
	if s.keys == nil {
		s.keys = map[string]*shape{}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if s.keys[key] == nil {
			s.keys[key] = &shape{earlier: earlier}
		}
		n.fields = append(n.fields, n.sampleField(key, s.keys[key]))
	}
}

// addSample gives a list, or a mapping with any keys, one value in a description.
func (n *Node) addSample(at func(*shape) **shape) {
	if n.shape == nil || !n.shape.accepts(n.shape.at) {
		return
	}
	child := at(n.shape)
	if *child == nil {
		*child = &shape{}
	}
	if n.kind == list {
		n.items = []*Node{(*child).node(n.in)}
	} else {
		n.fields = []field{n.sampleField(anyKey, *child)}
	}
}

func (n *Node) sampleField(key string, value *shape) field {
	return field{&Node{in: n.in, kind: word, text: key, shape: &shape{}}, value.node(n.in)}
}

// schema is the JSON Schema of the place; nil if a reader refuses every sample.
func (s *shape) schema() map[string]any {
	about, wasRead := map[string]any{}, false // except enum, each keyword applies to one type only
	var types []string
	var words []any
	for i := range s.samples {
		wasRead = wasRead || s.samples[i].taken
		if !s.accepts(i) {
			continue
		}
		name := samples[i].name
		switch enum, ofWords := s.details[i]["enum"].([]string); {
		case ofWords:
			for _, word := range enum {
				words = append(words, word)
			}
			continue
		case samples[i].kind == boolean && !(s.accepts(0) && s.accepts(1)):
			words = append(words, samples[i].text == "true")
			continue
		case samples[i].kind == list:
			about["items"] = s.items.schema()
		case samples[i].kind == mapping:
			s.addKeys(about)
		}
		maps.Copy(about, s.details[i])
		if narrower, ok := s.details[i]["type"].(string); ok {
			name = narrower
		}
		types = append(types, name)
	}
	if !wasRead && s.failed {
		return nil
	}
	return s.annotated(union(words, slices.Compact(types), about))
}

func (s *shape) accepts(sample int) bool {
	return s.samples[sample].taken && !s.samples[sample].refused
}

func union(words []any, types []string, about map[string]any) map[string]any {
	switch {
	case len(types) == 1:
		about["type"] = types[0]
	case len(types) > 1:
		about["type"] = types
	}
	switch ofWords := map[string]any{"enum": words}; {
	case len(words) == 0:
		return about
	case len(types) == 0:
		return ofWords
	default:
		return map[string]any{"anyOf": []any{ofWords, about}}
	}
}

func (s *shape) annotated(schema map[string]any) map[string]any {
	if s.description != "" {
		schema["description"] = s.description
	}
	if s.earlier {
		schema["deprecationMessage"] = "genv ignores this key; `genv policy check` says what to use instead"
	}
	return schema
}

func (s *shape) addKeys(about map[string]any) {
	about["additionalProperties"] = false
	if s.values != nil {
		about["additionalProperties"] = s.values.schema()
	}
	if s.keys == nil {
		return
	}
	properties := map[string]any{}
	for key, value := range s.keys {
		if schema := value.schema(); schema != nil {
			properties[key] = schema
		}
	}
	about["properties"] = properties
}
