package checkup

import (
	"io"
	"strings"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// WriteHost prints a row for each check of a machine, with the next step below it.
func WriteHost(w io.Writer, d *doctor.Document, s Style) error {
	if s.Format == "csv" {
		rows := [][]string{{"check", "status", "cause", "detail", "next_step"}}
		for _, c := range d.Checks {
			rows = append(rows, []string{string(c.Name), string(c.Status), string(c.Cause), c.Detail, c.NextStep})
		}
		return render.WriteCSV(w, s.WithoutHeader(rows))
	}
	var b strings.Builder
	s.WriteChecks(&b, d.Checks)
	if !d.Root {
		b.WriteString("This is what a user without root can see; `sudo genv doctor` may see more.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteChecks writes a row for each check, with the next step below it.
func (s *Style) WriteChecks(b *strings.Builder, checks []doctor.Check) {
	const name, status = 10, 9
	if !s.NoHeader {
		b.WriteString(Pad("CHECK", name) + Pad("STATUS", status) + "FOUND\n")
	}
	for _, c := range checks {
		b.WriteString(Pad(string(c.Name), name) + s.Coloured(Pad(string(c.Status), status), c.Status))
		s.Wrap(b, name+status, text.OneLine(c.Detail))
		if c.NextStep != "" {
			b.WriteString(strings.Repeat(" ", name+status) + "next: ")
			s.Wrap(b, name+status+len("next: "), text.OneLine(c.NextStep))
		}
	}
}

// WithoutHeader leaves out the first row of a table, if the style says so.
func (s *Style) WithoutHeader(rows [][]string) [][]string {
	if s.NoHeader {
		return rows[1:]
	}
	return rows
}
