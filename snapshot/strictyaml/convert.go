package strictyaml

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"
)

// convert makes a Node from the parser's, and refuses what this package does not support.
func convert(in *source, n ast.Node, depth int) *Node {
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
		node.kind = lines // nothing takes such a text
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
				value.place = key.place // there is nothing else to point at
			}
			n.fields = append(n.fields, field{key, value})
		}
	}
	if len(n.fields) > 0 { // the parser's own place is the first colon
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

// refuse records an error. The node stays without a value, so that there is no second error about it.
func (n *Node) refuse(message string) {
	n.kind = absent
	n.Failf("%s", message)
}

func newNode(in *source, n ast.Node) *Node {
	node := &Node{in: in, place: in.place(1, 1)}
	if token := n.GetToken(); token != nil && token.Position != nil {
		node.place = in.place(token.Position.Line, token.Position.Column)
	}
	return node
}

// maxDepth is how deep values may be nested. The parser's time grows with the square
// of the depth, so deeper files are refused before it reads them.
const maxDepth = 64
