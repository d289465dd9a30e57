package controller

import (
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// maxHostWords is how many characters of a line of a host's own are shown.
const maxHostWords = 128

// shownLines are a host's lines as they are shown. Those about the report are
// genv's own: 1.4.3 prints names and ids that users choose as they are, and names
// the environment that a process claims although it is in none. All others may
// contain anything that a user of the host wants an administrator to read.
func shownLines(report enforce.Report, lines []string) []string {
	shown := make(map[string]string)
	for i := range report.Detach {
		d := &report.Detach[i]
		shown[d.String()], shown[d.Raw()] = d.String(), d.String()
	}
	for i := range report.Terminate {
		t := &report.Terminate[i]
		shown[t.String()], shown[t.Raw()] = t.String(), t.String()
		shown[t.KillLine()] = t.KillLine()
	}
	list := slices.Clone(lines)
	for i, line := range list {
		own, known := shown[strings.TrimSpace(line)]
		if !known {
			own = "The host says: " + text.Quoted(strings.TrimSpace(line), maxHostWords)
		}
		list[i] = own
	}
	return list
}
