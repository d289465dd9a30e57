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

// table is a table of hosts: its columns, the gap between them, and whether the words are short.
type table struct {
	*remotedoctor.Document
	names []doctor.Name
	gap   int
	short bool
}

// writeTable writes the table. On a terminal that is too narrow for it the words get
// shorter, then the gaps, and then columns are left out in which no host has a problem.
func (s *Style) writeTable(b *strings.Builder, d *remotedoctor.Document) {
	t, left := table{d, doctor.Names(), 2, false}, []string(nil)
	for _, narrow := range []func(){
		func() { t.short = true },
		func() { t.gap = 1 },
		func() { t.gap = 2; t.names, left = distinctive(d) },
	} {
		if _, total := t.widths(); s.Width > 0 && total > s.Width {
			narrow()
		}
	}
	widths, _ := t.widths()
	write := func(host string, cell func(doctor.Name) (word, shown string)) {
		line := pad(host, widths[0])
		for i, n := range t.names {
			word, shown := cell(n)
			line += strings.Repeat(" ", t.gap) + shown + strings.Repeat(" ", widths[i+1]-len(word))
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if !s.NoHeader {
		write("HOST", func(n doctor.Name) (string, string) { return titleOf(n), titleOf(n) })
	}
	for i := range d.Hosts {
		write(text.Printable(d.Hosts[i].Host), func(n doctor.Name) (string, string) {
			status := d.Hosts[i].Check(n).Status
			return t.word(status), s.coloured(t.word(status), status)
		})
	}
	if len(left) > 0 {
		s.wrap(b, 0, "Columns left out, in which no host has a problem: "+strings.Join(left, ", "))
	}
}

func (t *table) word(status doctor.Status) string {
	if t.short {
		return words[status].short
	}
	return words[status].word
}

// widths are those of the columns, the first of which has the hosts, and of the table.
func (t *table) widths() (widths []int, total int) {
	widths = []int{len("HOST")}
	for i := range t.Hosts {
		widths[0] = max(widths[0], utf8.RuneCountInString(text.Printable(t.Hosts[i].Host)))
	}
	total = widths[0]
	for _, n := range t.names {
		width := len(titleOf(n))
		for i := range t.Hosts {
			width = max(width, len(t.word(t.Hosts[i].Check(n).Status)))
		}
		widths, total = append(widths, width), total+t.gap+width
	}
	return widths, total
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
