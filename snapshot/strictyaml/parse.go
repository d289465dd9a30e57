package strictyaml

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// lineEnds makes every kind of line end one newline: the parser counts those of
// Windows twice after a comment.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// Parse parses a document. The file's name is only for messages. Errors are collected
// in the document. If it can't be parsed, its Root has no value.
func Parse(file string, data []byte) *Document {
	d := &Document{source: &source{file: file}}
	d.root = &Node{in: d.source, place: d.place(1, 1)}
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
		flow = max(0, flow+strings.Count(line, "[")+strings.Count(line, "{")-strings.Count(line, "]")-strings.Count(line, "}"))
		if flow > maxDepth || levels(line) > maxDepth {
			d.failf(d.place(i+1, 1), "values are nested deeper than %d levels; close the brackets, or use fewer levels", maxDepth)
			return false
		}
	}
	return true
}

// levels is how many levels a line may open: one for each "- " and "? " at its
// beginning, and one for each key above it, which has less indentation.
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
		node := convert(d.source, doc.Body, 0)
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

// parseBytes calls the parser, and turns a panic into an error: the parser may have bugs.
func parseBytes(data []byte) (file *ast.File, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("this cannot be parsed as YAML (%v)", reason)
		}
	}()
	return parser.ParseBytes(data, 0)
}

// syntaxError records an error of the parser, with a hint about special characters,
// which host patterns and groups contain.
func (d *Document) syntaxError(err error) {
	at, message := d.place(1, 1), err.Error()
	var e yaml.Error
	if errors.As(err, &e) {
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
