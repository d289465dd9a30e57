package strictyaml

import (
	"fmt"
	"strconv"
)

// Node is a value in a document. Its readers record an error in the document
// when the value is not of their type, and return zero.
type Node struct {
	doc          *Document
	kind         kind
	key          string // of which it is the value, for messages; "" in a list
	text         string
	flag         bool
	items        []*Node
	fields       []field
	line, column int
}

type field struct{ key, value *Node }

// Place is where the value begins.
func (n *Node) Place() Place { return Place{File: n.doc.file, Line: n.line, Column: n.column} }

// Failf records an error at the value's place. The message says what is wrong
// and what to do about it.
func (n *Node) Failf(format string, args ...any) {
	n.doc.fail(n.line, n.column, fmt.Sprintf(format, args...))
}

// IsMap says whether the value is a mapping.
func (n *Node) IsMap() bool { return n.kind == mapping }

// IsList says whether the value is a list.
func (n *Node) IsList() bool { return n.kind == list }

// IsText says whether the value is text, quoted or plain.
func (n *Node) IsText() bool { return n.kind == word }

// IsBool says whether the value is true or false.
func (n *Node) IsBool() bool { return n.kind == boolean }

// want says whether the node is of a kind, and complains if it is not.
func (n *Node) want(k kind, example string) bool {
	if n.kind == k {
		return true
	}
	if n.kind != absent { // what is absent was complained about
		n.Failf("%sexpected %s, as in `%s`, but there is %s", n.label(), kindNames[k], example, n.describe())
	}
	return false
}

func (n *Node) label() string {
	if n.key == "" {
		return ""
	}
	return n.key + ": "
}

func (n *Node) describe() string {
	switch n.kind {
	case word, number:
		return fmt.Sprintf("%s %q", kindNames[n.kind], n.text)
	case boolean:
		return strconv.FormatBool(n.flag)
	default:
		return kindNames[n.kind]
	}
}

// Text is a text that is not empty.
func (n *Node) Text() string {
	if n.kind == number || n.kind == boolean {
		n.Failf("%sexpected text, but there is %s; put it in quotes", n.label(), n.describe())
		return ""
	}
	if n.want(word, "word") && n.text == "" {
		n.Failf("%sthe text is empty; write it, or remove the line", n.label())
	}
	return n.text
}

// Scalar is a text, number or bool as it is written, which may be empty.
func (n *Node) Scalar() string {
	switch n.kind {
	case number:
		return n.text
	case boolean:
		return strconv.FormatBool(n.flag)
	case word:
		return n.text
	default:
		n.want(word, "word")
		return ""
	}
}

// Bool is true or false, and not one of their other names.
func (n *Node) Bool() bool { return n.want(boolean, "true") && n.flag }

// Int is a whole decimal number from low to high.
func (n *Node) Int(low, high int) int {
	if !n.want(number, strconv.Itoa(low)) {
		return 0
	}
	i, err := strconv.Atoi(n.text) // 010 is 10 here, and not octal
	if err != nil || i < low || i > high {
		n.Failf("%s%s is not a whole number from %d to %d", n.label(), n.text, low, high)
		return 0
	}
	return i
}
