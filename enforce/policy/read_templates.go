package policy

import (
	"errors"

	"github.com/seed-3119e985/genv/enforce/notify/texts"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// readTemplates reads `templates:`. An error in a template has the place in the file.
func (r *reader) readTemplates(n *strictyaml.Node) {
	r.file.Templates = texts.Set{}
	keys := strictyaml.Keys{}
	for _, kind := range texts.Kinds {
		keys[string(kind)] = func(n *strictyaml.Node) {
			source := n.Lines()
			if source == "" {
				return
			}
			parsed, err := texts.Parse(kind, source)
			var wrong *texts.ParseError
			switch {
			case errors.As(err, &wrong):
				n.FailLine(wrong.Line, "the template: %s", wrong.Message)
			case err != nil:
				n.Failf("the template: %v", err)
			default:
				r.file.Templates[kind] = parsed
			}
		}
	}
	n.Map(keys)
}
