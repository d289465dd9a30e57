package app

import (
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// zsh answers for the words before the current one, without their quotes, and the part of
// it before the cursor as it is written. The first word is genv.
func (e *engine) zsh(words []string) string {
	current, positions := unquoted(words[len(words)-1])
	a := e.complete(words[1:len(words)-1], current)
	skip := 0 // in characters of the word as it is written
	if a.skip > 0 {
		skip = len([]rune(words[len(words)-1][:positions[a.skip-1]]))
	}
	var b strings.Builder
	switch a.do {
	case files:
		fmt.Fprintf(&b, "files %d\n", skip)
	case folders:
		fmt.Fprintf(&b, "folders %d\n", skip)
	case program:
		fmt.Fprintf(&b, "program %d\n", a.program+1)
	case offer:
		fmt.Fprintf(&b, "words %d %s\n", skip, [...]string{space: "space", none: "nospace", list: "list"}[a.suffix])
	}
	escape := strings.NewReplacer(`\`, `\\`, ":", `\:`)
	for _, c := range a.candidates {
		b.WriteString(escape.Replace(c.value))
		if c.text != "" {
			b.WriteString(":" + text.OneLine(c.text))
		}
		b.WriteString("\n")
	}
	return b.String()
}
