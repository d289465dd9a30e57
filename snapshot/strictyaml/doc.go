// Package strictyaml reads configuration files of which nothing may be
// misread: an unknown key, a wrong type, a key that stands twice are errors
// that name the file, line and column, and what was meant.
//
//	doc := strictyaml.Parse("hosts.yaml", data)
//	doc.Root().Map(strictyaml.Keys{
//		"port": func(n *strictyaml.Node) { port = n.Int(1, 65535) },
//		"user": func(n *strictyaml.Node) { user = n.Text() },
//	})
//	if err := doc.Err(); err != nil { … }
//
// Errors are gathered in the document, so that a reader of a file is a plain
// list of what it expects; a value that is wrong reads as zero. Nothing that
// was read may be used before Err was asked.
//
// It reads a simple YAML: one document, no anchors, aliases, merge keys or tags
// (so that a short file cannot become a long one), and words of one line. It
// converts nothing: "yes" is no bool and 22 is no text. Which keys there are,
// and what they mean, is the business of its callers.
package strictyaml
