// Package checkup prints what `genv doctor` found about a machine and `genv remote doctor` about hosts,
// and has the exit code of both.
//
//	err := checkup.WriteHost(p.Out, document, checkup.StyleOf(p.Program, output))
//	return checkup.Exit(document.Status)
package checkup

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Style is how the checks are printed.
type Style struct {
	render.Output
	Width     int // of the terminal; 0 if it is not known
	Colourful bool
	// All also prints the details of checks that are in order.
	All bool
	// TableOnly leaves the details out.
	TableOnly bool
}

// StyleOf is the style for a program's stdout.
func StyleOf(p command.Program, output render.Output) Style {
	return Style{Output: output, Width: render.Width(p.Out), Colourful: render.Colourful(p.Out, p.Getenv)}
}

// Exit is the end of a command: with exit code 3 if a check failed, or could not be made
// since the command was stopped.
func Exit(status doctor.Status) error {
	if status == doctor.Failed || status == doctor.Skipped {
		return &command.ExitError{Code: command.ExitSomeFailed}
	}
	return nil
}

// words are how a status is printed: in the table, short where it would be too wide, above details, and
// its colour.
var words = map[doctor.Status]struct{ word, short, heading, colour string }{
	doctor.OK:      {"ok", "ok", "OK", "32"},
	doctor.Skipped: {"-", "-", "Skipped", "2"},
	doctor.Warning: {"warning", "warn", "Warnings", "33"},
	doctor.Failed:  {"failed", "FAIL", "Failed", "31;1"},
}

// coloured is a word in the colour of a status.
func (s *Style) coloured(word string, status doctor.Status) string {
	if !s.Colourful {
		return word
	}
	return "\x1b[" + words[status].colour + "m" + word + "\x1b[0m"
}

// pad fills a word with spaces to a width, in characters.
func pad(word string, width int) string {
	return word + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(word)))
}

// wrap writes a text after an indent, in lines that fit on the terminal.
func (s *Style) wrap(b *strings.Builder, indent int, text string) {
	b.WriteString(render.Wrap(text, indent, s.Width) + "\n")
}

// WriteHost prints a row for each check of a machine, with the next step below it.
func WriteHost(w io.Writer, d *doctor.Document, s Style) error {
	if s.Format == "csv" {
		return s.writeCSV(w, rowsOf(nil, d.Checks))
	}
	var b strings.Builder
	s.writeChecks(&b, d.Checks)
	if !d.Root {
		b.WriteString("This is what a user without root can see; `sudo genv doctor` may see more.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeChecks writes a row for each check, with the next step below it.
func (s *Style) writeChecks(b *strings.Builder, checks []doctor.Check) {
	const name, status = 10, 9
	if !s.NoHeader {
		b.WriteString(pad("CHECK", name) + pad("STATUS", status) + "FOUND\n")
	}
	for _, c := range checks {
		b.WriteString(pad(string(c.Name), name) + s.coloured(pad(string(c.Status), status), c.Status))
		s.wrap(b, name+status, text.OneLine(c.Detail))
		if c.NextStep != "" {
			b.WriteString(strings.Repeat(" ", name+status) + "next: ")
			s.wrap(b, name+status+len("next: "), text.OneLine(c.NextStep))
		}
	}
}

// rowsOf adds a row of CSV for each check, which begins with what comes before.
func rowsOf(rows [][]string, checks []doctor.Check, before ...string) [][]string {
	for _, c := range checks {
		rows = append(rows, slices.Concat(before, []string{string(c.Name), string(c.Status), string(c.Cause), c.Detail, c.NextStep}))
	}
	return rows
}

func (s *Style) writeCSV(w io.Writer, rows [][]string, before ...string) error {
	if !s.NoHeader {
		rows = slices.Insert(rows, 0, slices.Concat(before, []string{"check", "status", "cause", "detail", "next_step"}))
	}
	return render.WriteCSV(w, rows)
}
