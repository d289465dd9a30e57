// Package strictyaml reads configuration files strictly: an unknown key, a wrong type
// or a duplicate key is an error that names the file, line and column, and how to
// correct it.
//
//	doc := strictyaml.Parse("hosts.yaml", data)
//	doc.Root().Map(strictyaml.Keys{
//		"port": func(n *strictyaml.Node) { port = n.Int(1, 65535) },
//		"user": func(n *strictyaml.Node) { user = n.Text() },
//	})
//	if err := doc.Err(); err != nil { … }
//
// Errors are collected in the document, so that a caller just lists what it expects; a
// wrong value is read as zero. Check Err before you use any value.
//
// It supports a subset of YAML: one document, no anchors, aliases, merge keys or tags
// (so that a short file cannot expand into a long one), and text on one line, except
// where a caller asks for Lines. It converts nothing: "yes" is not a bool and 22 is not
// text. It does not know which keys there are or what they mean.
package strictyaml
