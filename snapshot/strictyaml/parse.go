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

// maxDepth is how deep values may nest. The parser needs time that grows with
// the square of the depth, so deeper files are refused before it sees them.
const maxDepth = 64

// lineEnds makes every kind of line end one newline: the parser counts those of
// Windows twice behind a comment.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// Parse reads a document. The file's name is for messages only. Errors are kept
// in the document; a document that is broken has a Root without a value.
func Parse(file string, data []byte) *Document {
	d := &Document{file: file}
	d.root = &Node{doc: d, kind: absent, line: 1, column: 1}
	if len(data) > MaxSize {
		d.fail(1, 1, fmt.Sprintf("the file has %d bytes, more than the %d that are read; split it", len(data), MaxSize))
		return d
	}
	text := lineEnds.Replace(strings.TrimPrefix(string(data), "\uFEFF"))
	d.lines = strings.Split(text, "\n")
	if d.legible() {
		d.parse(text)
	}
	return d
}

// legible refuses what the parser must not see: text that is not UTF-8, and
// nesting that would keep it busy.
func (d *Document) legible() bool {
	flow := 0
	for i, line := range d.lines {
		if !utf8.ValidString(line) {
			d.fail(i+1, 1, "the line is not UTF-8; save the file as UTF-8")
			return false
		}
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) == "" {
			continue
		}
		flow = max(0, flow+strings.Count(line, "[")+strings.Count(line, "{")-strings.Count(line, "]")-strings.Count(line, "}"))
		if flow > maxDepth || indicators(line) > maxDepth {
			d.fail(i+1, 1, fmt.Sprintf("values nest deeper than %d levels; close the brackets, or write it flatter", maxDepth))
			return false
		}
	}
	return true
}

// indicators counts the "- " and "? " that a line begins with: each opens a
// level. A key opens one as well, by its indentation.
func indicators(line string) int {
	levels := 0
	rest := strings.TrimLeft(line, " ")
	levels += (len(line) - len(rest)) / 2
	for len(rest) > 1 && (rest[0] == '-' || rest[0] == '?') && rest[1] == ' ' {
		levels++
		rest = strings.TrimLeft(rest[1:], " ")
	}
	return levels
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
		node := d.convert(doc.Body, 0)
		if seen {
			node.Failf("a second document begins here; a file holds one, so remove the --- before it")
			return
		}
		d.root, seen = node, true
	}
	if !seen {
		d.fail(1, 1, "there is nothing in the file but comments; write its keys")
	}
}

// parseBytes is the parser, of which nobody knows that it cannot panic.
func parseBytes(data []byte) (file *ast.File, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("this cannot be read as YAML (%v)", reason)
		}
	}()
	return parser.ParseBytes(data, 0)
}

// syntaxError takes over an error of the parser, with a hint for the two
// mistakes that host patterns invite.
func (d *Document) syntaxError(err error) {
	line, column, message := 1, 1, err.Error()
	var e yaml.Error
	if errors.As(err, &e) {
		message = e.GetMessage()
		if token := e.GetToken(); token != nil && token.Position != nil {
			line, column = token.Position.Line, token.Position.Column
		}
	}
	message, _, _ = strings.Cut(message, "\n")
	if source := d.source(line); strings.ContainsAny(source, "@[{*&!%`") {
		message += "; put quotes around words with special characters, as in \"@group\" or [\"gpu-[01-04]\"]"
	}
	d.fail(line, column, message)
}
