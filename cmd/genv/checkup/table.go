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

// words are those of the table: whole ones, or short ones where it would be too wide.
var (
	words      = map[doctor.Status]string{doctor.OK: "ok", doctor.Warning: "warning", doctor.Failed: "failed", doctor.Skipped: "-"}
	shortWords = map[doctor.Status]string{doctor.OK: "ok", doctor.Warning: "warn", doctor.Failed: "FAIL", doctor.Skipped: "-"}
)

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
	names, use, gap, left := doctor.Names(), words, 2, []string(nil)
	for _, narrow := range []func(){
		func() { use = shortWords },
		func() { gap = 1 },
		func() { gap = 2; names, left = distinctive(d) },
	} {
		if s.Width > 0 && widthOf(d, names, use, gap) > s.Width {
			narrow()
		}
	}
	widths := widthsOf(d, names, use)
	write := func(host string, cell func(doctor.Name) (word, shown string)) {
		line := pad(host, widths[0])
		for i, n := range names {
			word, shown := cell(n)
			line += strings.Repeat(" ", gap) + shown + strings.Repeat(" ", widths[i+1]-len(word))
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if !s.NoHeader {
		write("HOST", func(n doctor.Name) (string, string) { return titleOf(n), titleOf(n) })
	}
	for i := range d.Hosts {
		write(text.Printable(d.Hosts[i].Host), func(n doctor.Name) (string, string) {
			status := d.Hosts[i].Check(n).Status
			return use[status], s.coloured(use[status], status)
		})
	}
	if len(left) > 0 {
		s.wrap(b, 0, "Columns left out, in which no host has a problem: "+strings.Join(left, ", "))
	}
}

// widthsOf are the widths of the columns, the first of which has the hosts.
func widthsOf(d *remotedoctor.Document, names []doctor.Name, use map[doctor.Status]string) []int {
	widths := []int{len("HOST")}
	for _, n := range names {
		widths = append(widths, len(titleOf(n)))
	}
	for i := range d.Hosts {
		widths[0] = max(widths[0], utf8.RuneCountInString(text.Printable(d.Hosts[i].Host)))
		for j, n := range names {
			widths[j+1] = max(widths[j+1], len(use[d.Hosts[i].Check(n).Status]))
		}
	}
	return widths
}

func widthOf(d *remotedoctor.Document, names []doctor.Name, use map[doctor.Status]string, gap int) int {
	total := gap * len(names)
	for _, width := range widthsOf(d, names, use) {
		total += width
	}
	return total
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
