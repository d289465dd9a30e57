package checkup

import (
	"io"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/text"
)

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
