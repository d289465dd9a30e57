// Package strictyaml reads configuration files strictly: unknown keys, wrong types and duplicate keys are errors with
// file, line, column, and a correction.
//
//	doc := strictyaml.Parse("hosts.yaml", data)
//	doc.Root().Map(strictyaml.Keys{
//		"port": func(n *strictyaml.Node) { port = n.Int(1, 65535) },
//		"user": func(n *strictyaml.Node) { user = n.Text() },
//	})
//	if err := doc.Err(); err != nil { … }
//
// The document collects errors, so that a caller just lists its keys; a wrong value is read as zero. Check Err before
// you use any value.
//
// It supports a subset of YAML: one document, text on one line, no anchors, aliases, merge keys or tags (so that a
// short file cannot expand into a long one). It converts nothing: "yes" is not a bool and 22 is not text.
package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// lineEnds normalises line ends: the parser counts those of Windows twice after a comment.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// Parse parses a document; file is its name in messages. If it can't be parsed, its Root has no value.
func Parse(file string, data []byte) *Document {
	d := &Document{file: file}
	d.root = &Node{in: d, place: d.place(1, 1)}
	if len(data) > MaxSize {
		d.root.Failf("the file has %d bytes, more than the maximum of %d; split it", len(data), MaxSize)
		return d
	}
	text := lineEnds.Replace(strings.TrimPrefix(string(data), "\uFEFF"))
	d.lines = strings.Split(text, "\n")
	if d.parseable() {
		d.parse(text)
	}
	return d
}

// parseable refuses text that is not UTF-8, and nesting that takes the parser too long.
func (d *Document) parseable() bool {
	flow := 0
	for i, line := range d.lines {
		if !utf8.ValidString(line) {
			d.failf(d.place(i+1, 1), "the line is not UTF-8; save the file as UTF-8")
			return false
		}
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) == "" {
			continue
		}
		flow = max(0, flow+strings.Count(line, "[")+strings.Count(line, "{")-strings.Count(line,
			"]")-strings.Count(line, "}"))
		if flow > maxDepth || levels(line) > maxDepth {
			d.failf(d.place(i+1, 1), "values are nested deeper than %d levels; close the brackets, or use fewer levels",
				maxDepth)
			return false
		}
	}
	return true
}

// levels counts the levels that a line may open: each "- " and "? " at its beginning, and each key above with less
// indentation.
func levels(line string) int {
	rest := strings.TrimLeft(line, " ")
	n := (len(line) - len(rest)) / 2
	for len(rest) > 1 && (rest[0] == '-' || rest[0] == '?') && rest[1] == ' ' {
		n++
		rest = strings.TrimLeft(rest[1:], " ")
	}
	return n
}

func (d *Document) parse(text string) {
	file, err := parseBytes([]byte(text))
	if err != nil {
		d.syntaxError(err)
		return
	}
	seen := false
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		node := convert(d, doc.Body, 0)
		if seen {
			node.Failf("a second document begins here, but a file may contain only one; remove the --- before it")
			return
		}
		d.root, seen = node, true
	}
	if !seen {
		d.root.Failf("the file is empty or contains only comments; write its keys")
	}
}

// parseBytes turns a panic of the parser, which may have bugs, into an error.
func parseBytes(data []byte) (file *ast.File, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("this cannot be parsed as YAML (%v)", reason)
		}
	}()
	return parser.ParseBytes(data, 0)
}

// syntaxError records an error of the parser, with a hint about special characters, which host patterns and groups
// have.
func (d *Document) syntaxError(err error) {
	at, message := d.place(1, 1), err.Error()
	if e, ok := errors.AsType[yaml.Error](err); ok {
		message = e.GetMessage()
		if token := e.GetToken(); token != nil && token.Position != nil {
			at = d.place(token.Position.Line, token.Position.Column)
		}
	}
	message, _, _ = strings.Cut(message, "\n")
	if strings.ContainsAny(d.line(at.Line), "@[{*&!%`") {
		message += "; put quotes around words with special characters, as in \"@group\" or [\"gpu-[01-04]\"]"
	}
	d.failf(at, "%s", message)
}

// Document is a parsed file with its errors so far.
type Document struct {
	file  string
	lines []string
	errs  []*ParseError
	root  *Node
}

// Root is never nil, but has no value if the document could not be parsed.
func (d *Document) Root() *Node { return d.root }

// Err is the first error in the file, a *ParseError, or nil.
func (d *Document) Err() error {
	if len(d.errs) == 0 {
		return nil
	}
	return slices.MinFunc(d.errs, inFile)
}

func inFile(a, b *ParseError) int {
	return cmp.Or(cmp.Compare(a.Place.Line, b.Place.Line), cmp.Compare(a.Place.Column, b.Place.Column))
}

// Errors counts the errors so far.
func (d *Document) Errors() int { return len(d.errs) }

// All joins the errors in the order of the file; nil for none.
func (d *Document) All() error {
	errs := make([]error, len(d.errs))
	for i, e := range slices.SortedStableFunc(slices.Values(d.errs), inFile) {
		errs[i] = e
	}
	return errors.Join(errs...)
}

const (
	MaxSize    = 4 << 20 // bytes of a file
	maxErrors  = 20      // more tend to follow from the first ones
	maxQuoted  = 61      // characters of the source line in an error
	maxMessage = 401     // characters of a message, which may quote the file
)

// Place is a position in a file, counted from 1.
type Place struct {
	File         string
	Line, Column int
}

func (p Place) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// ParseError is an error in a file.
type ParseError struct {
	Place   Place
	Message string // what is wrong, and how to correct it
	Source  string // the line without its indentation; may be empty
}

func (e *ParseError) Error() string {
	if e.Source == "" {
		return fmt.Sprintf("%s: %s", e.Place, e.Message)
	}
	return fmt.Sprintf("%s: %s (in %q)", e.Place, e.Message, e.Source)
}

func (d *Document) place(line, column int) Place { return Place{d.file, line, column} }

func (d *Document) failf(at Place, format string, args ...any) {
	if len(d.errs) < maxErrors {
		message := text.Shorten(fmt.Sprintf(format, args...), maxMessage)
		d.errs = append(d.errs, &ParseError{Place: at, Message: message, Source: d.line(at.Line)})
	}
}

func (d *Document) line(number int) string {
	if number < 1 || number > len(d.lines) {
		return ""
	}
	return text.Shorten(strings.TrimSpace(d.lines[number-1]), maxQuoted)
}

func convert(in *Document, n ast.Node, depth int) *Node {
	node := newNode(in, n)
	if depth > maxDepth {
		node.refuse("values are nested too deeply; use fewer levels")
		return node
	}
	switch n := n.(type) {
	case *ast.NullNode:
		node.kind = null
	case *ast.BoolNode:
		node.kind, node.text = boolean, strconv.FormatBool(n.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		node.kind, node.text = number, n.GetToken().Value
	case *ast.StringNode:
		node.setWord(n.Value)
	case *ast.LiteralNode:
		node.kind = lines // no method accepts it
	case *ast.SequenceNode:
		node.kind = list
		for _, item := range n.Values {
			node.items = append(node.items, convert(in, item, depth+1))
		}
	case *ast.MappingNode:
		node.addFields(n.Values, depth)
	case *ast.MappingValueNode:
		node.addFields([]*ast.MappingValueNode{n}, depth)
	default:
		node.refuse("anchors, aliases and tags are not supported; write the value itself")
	}
	return node
}

func (n *Node) addFields(values []*ast.MappingValueNode, depth int) {
	n.kind = mapping
	for _, v := range values {
		key := newNode(n.in, v.Key)
		switch k := v.Key.(type) {
		case *ast.StringNode:
			key.setWord(k.Value)
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			key.setWord(k.GetToken().Value)
		default:
			key.refuse("a key must be a single word; merge keys, lists and mappings are not supported as keys")
		}
		if key.kind == word {
			value := convert(n.in, v.Value, depth+1)
			if value.key = key.text; value.kind == null {
				value.place = key.place // nothing else has a place
			}
			n.fields = append(n.fields, field{key, value})
		}
	}
	if len(n.fields) > 0 { // the parser's place is the first colon
		n.place = n.fields[0].key.place
	}
}

func (n *Node) setWord(text string) {
	if strings.ContainsFunc(text, unicode.IsControl) {
		n.refuse("the text contains a line break or another control character; remove it")
		return
	}
	n.kind, n.text = word, text
}

const notOneLine = "text over several lines is not supported; write it after the key, in quotes if necessary"

// refuse records an error and removes the value, so that no second error follows.
func (n *Node) refuse(message string) {
	n.kind = absent
	n.Failf("%s", message)
}

func newNode(in *Document, n ast.Node) *Node {
	node := &Node{in: in, place: in.place(1, 1)}
	if token := n.GetToken(); token != nil && token.Position != nil {
		node.place = in.place(token.Position.Line, token.Position.Column)
	}
	return node
}

// maxDepth limits nesting before the parser: its time grows with the square of the depth.
const maxDepth = 64
