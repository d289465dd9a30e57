package strictyaml

import (
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"
)

type kind int

const (
	absent  kind = iota // nothing, or something that was refused already
	null                // a key with nothing behind it
	boolean             // true or false
	number              // as it is written, in text
	word                // quoted or plain text
	list
	mapping
)

var kindNames = [...]string{"nothing", "nothing", "true or false", "a number", "text", "a list", "a mapping"}

// convert makes a tree of our own of the parser's, and refuses what is not the
// simple YAML that this package reads.
func (d *Document) convert(n ast.Node, depth int) *Node {
	node := d.at(n)
	if depth > maxDepth {
		return node.refuse("values nest too deep; write it flatter")
	}
	switch n := n.(type) {
	case *ast.NullNode:
		node.kind = null
	case *ast.BoolNode:
		node.kind, node.flag = boolean, n.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		node.kind, node.text = number, n.GetToken().Value
	case *ast.StringNode:
		node.setWord(n.Value)
	case *ast.LiteralNode:
		node.refuse("text stands on one line; write it behind the key, in quotes if need be")
	case *ast.SequenceNode:
		node.kind = list
		for _, item := range n.Values {
			node.items = append(node.items, d.convert(item, depth+1))
		}
	case *ast.MappingNode:
		node.addFields(n.Values, depth)
	case *ast.MappingValueNode:
		node.addFields([]*ast.MappingValueNode{n}, depth)
	default:
		node.refuse("anchors, aliases and tags are not read; write the value itself")
	}
	return node
}

func (n *Node) addFields(values []*ast.MappingValueNode, depth int) {
	n.kind = mapping
	for _, v := range values {
		key := n.doc.at(v.Key)
		switch k := v.Key.(type) {
		case *ast.StringNode:
			key.setWord(k.Value)
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			key.setWord(k.GetToken().Value)
		default:
			key.refuse("a key is one word; merge keys, lists and mappings are not read as keys")
		}
		if key.kind == word {
			value := n.doc.convert(v.Value, depth+1)
			if value.key = key.text; value.kind == null {
				value.line, value.column = key.line, key.column // there is nothing else to point at
			}
			n.fields = append(n.fields, field{key, value})
		}
	}
	if len(n.fields) > 0 { // the parser's own place is the first colon
		n.line, n.column = n.fields[0].key.line, n.fields[0].key.column
	}
}

func (n *Node) setWord(text string) {
	if strings.IndexFunc(text, unicode.IsControl) >= 0 {
		n.refuse("the text holds a line break or another control character; remove it")
		return
	}
	n.kind, n.text = word, text
}

// refuse records an error; the node stays without a value, so that it is not
// complained about twice.
func (n *Node) refuse(message string) *Node {
	n.kind = absent
	n.doc.fail(n.line, n.column, message)
	return n
}

func (d *Document) at(n ast.Node) *Node {
	node := &Node{doc: d, line: 1, column: 1}
	if token := n.GetToken(); token != nil && token.Position != nil {
		node.line, node.column = token.Position.Line, token.Position.Column
	}
	return node
}
