package checkup

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	remotedoctor "github.com/seed-3119e985/genv/remote/doctor"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// WriteFleet prints what is not in order, and then a row for each host with a column for
// each check: the table is what remains on the screen. Its error is that of w.
func WriteFleet(w io.Writer, d *remotedoctor.Document, s Style) error {
	if s.Format == "csv" {
		rows := rowsOf(nil, d.Controllers, "")
		for i := range d.Hosts {
			rows = rowsOf(rows, d.Hosts[i].Checks, d.Hosts[i].Host)
		}
		return s.writeCSV(w, rows, "host")
	}
	var b strings.Builder
	if !s.TableOnly {
		if len(d.Controllers) > 0 {
			s.writeChecks(&b, d.Controllers)
		}
		s.writeDetails(&b, d)
	}
	s.writeTable(&b, d)
	if !s.TableOnly {
		fmt.Fprintf(&b, "%s: %d ok, %d with warnings, %d failed\n", render.Plural(len(d.Hosts), "host"), d.OK, d.Warnings, d.Failures)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// titles are the columns that are not named like their check.
var titles = map[doctor.Name]string{doctor.HostKey: "KEY", doctor.PIDNamespace: "PIDNS", doctor.Services: "UNITS", doctor.Controller: "CTRL"}

func titleOf(name doctor.Name) string {
	if title, other := titles[name]; other {
		return title
	}
	return strings.ToUpper(string(name))
}

// writeTable writes the table. On a terminal that is too narrow for it the words get
// shorter, then the gaps, and then columns are left out in which no host has a problem.
func (s *Style) writeTable(b *strings.Builder, d *remotedoctor.Document) {
	names, short, gap, left := doctor.Names(), false, 2, []string(nil)
	rows, widths, total := cells(d, names, short)
	for _, narrow := range []func(){
		func() { short = true },
		func() { gap = 1 },
		func() { gap = 2; names, left = distinctive(d) },
	} {
		if s.Width > 0 && total+gap*len(names) > s.Width {
			narrow()
			rows, widths, total = cells(d, names, short)
		}
	}
	for i, row := range rows {
		if i == 0 && s.NoHeader {
			continue
		}
		line := pad(row[0], widths[0])
		for j, n := range names {
			word := row[j+1]
			if i > 0 {
				word = s.coloured(word, d.Hosts[i-1].Check(n).Status)
			}
			line += strings.Repeat(" ", gap) + word + strings.Repeat(" ", widths[j+1]-len(row[j+1]))
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if len(left) > 0 {
		s.wrap(b, 0, "Columns left out, in which no host has a problem: "+strings.Join(left, ", "))
	}
}

// cells are the words of the table, with the header, the widths of the columns, and that of all of them.
func cells(d *remotedoctor.Document, names []doctor.Name, short bool) (rows [][]string, widths []int, total int) {
	header := []string{"HOST"}
	for _, n := range names {
		header = append(header, titleOf(n))
	}
	rows = append(rows, header)
	for i := range d.Hosts {
		row := []string{text.Printable(d.Hosts[i].Host)}
		for _, n := range names {
			w := words[d.Hosts[i].Check(n).Status]
			if short {
				w.word = w.short
			}
			row = append(row, w.word)
		}
		rows = append(rows, row)
	}
	widths = make([]int, len(header))
	for j := range header {
		for _, row := range rows {
			widths[j] = max(widths[j], utf8.RuneCountInString(row[j]))
		}
		total += widths[j]
	}
	return rows, widths, total
}

// distinctive are the checks in which a host has a problem, and the titles of the others.
func distinctive(d *remotedoctor.Document) (names []doctor.Name, others []string) {
	for _, n := range doctor.Names() {
		if slices.ContainsFunc(d.Hosts, func(h remotedoctor.Host) bool { return h.Check(n).Status.Worse(doctor.Skipped) }) {
			names = append(names, n)
		} else {
			others = append(others, string(n))
		}
	}
	return names, others
}
