package texts

import (
	"fmt"
	"strings"
)

// Set is the templates of a policy, by kind. Those that are missing are built in. The
// nil Set has none.
type Set map[Kind]*Template

// Text is the text of a notice by its template. Without one it is built in; also if the
// template fails, and then failed is called.
func (s Set) Text(kind Kind, n Notice, builtIn func(Notice) string, failed func(error)) string {
	t := s[kind]
	if t == nil {
		return builtIn(n)
	}
	text, err := t.execute(n)
	if err == nil && strings.TrimSpace(text) == "" {
		err = fmt.Errorf("it writes nothing")
	}
	if err != nil {
		if failed != nil {
			failed(fmt.Errorf("the template %s failed, and the built-in text is used: %w", kind, err))
		}
		return builtIn(n)
	}
	return text
}
