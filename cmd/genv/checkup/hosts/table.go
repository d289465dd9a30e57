package hosts

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/seed-3119e985/genv/cmd/genv/checkup"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	remotedoctor "github.com/seed-3119e985/genv/remote/doctor"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Write prints what is not in order, and then a row for each host with a column for
// each check: the table is what remains on the screen. Its error is that of w.
func Write(w io.Writer, d *remotedoctor.Document, style checkup.Style) error {
	s := printer{style}
	if s.Format == "csv" {
		rows := [][]string{{"host", "check", "status", "cause", "detail", "next_step"}}
		for _, c := range d.Controllers {
			rows = append(rows, []string{"", string(c.Name), string(c.Status), string(c.Cause), c.Detail, c.NextStep})
		}
		for i := range d.Hosts {
			for _, c := range d.Hosts[i].Checks {
				rows = append(rows, []string{d.Hosts[i].Host, string(c.Name), string(c.Status), string(c.Cause), c.Detail, c.NextStep})
			}
		}
		return render.WriteCSV(w, s.WithoutHeader(rows))
	}
	var b strings.Builder
	if !s.TableOnly {
		if len(d.Controllers) > 0 {
			s.WriteChecks(&b, d.Controllers)
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

// printer prints a document in a style.
type printer struct{ checkup.Style }

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
func (s *printer) writeTable(b *strings.Builder, d *remotedoctor.Document) {
	names, use := doctor.Names(), words
	name := len("HOST")
	for i := range d.Hosts {
		name = max(name, utf8.RuneCountInString(text.Printable(d.Hosts[i].Host)))
	}
	var same []string
	gap := 2
	tooWide := func() bool { return s.Width > 0 && name+widthOf(names, d, use)+gap*len(names) > s.Width }
	if tooWide() {
		use = shortWords
	}
	if tooWide() {
		gap = 1
	}
	if tooWide() {
		gap = 2
		names, same = distinctive(d)
	}
	between := strings.Repeat(" ", gap)
	if !s.NoHeader {
		b.WriteString(checkup.Pad("HOST", name))
		for _, n := range names {
			b.WriteString(between + checkup.Pad(titleOf(n), columnWidth(n, d, use)))
		}
		trimLine(b)
	}
	for i := range d.Hosts {
		b.WriteString(checkup.Pad(text.Printable(d.Hosts[i].Host), name))
		for _, n := range names {
			status := d.Hosts[i].Check(n).Status
			word := use[status]
			b.WriteString(between + s.Coloured(word, status) + strings.Repeat(" ", columnWidth(n, d, use)-len(word)))
		}
		trimLine(b)
	}
	if len(same) > 0 {
		s.Wrap(b, 0, "Columns left out, in which no host has a problem: "+strings.Join(same, ", "))
	}
}

// trimLine ends a line without the spaces at its end.
func trimLine(b *strings.Builder) {
	line := strings.TrimRight(b.String(), " ")
	b.Reset()
	b.WriteString(line + "\n")
}

func columnWidth(n doctor.Name, d *remotedoctor.Document, use map[doctor.Status]string) int {
	width := len(titleOf(n))
	for i := range d.Hosts {
		width = max(width, len(use[d.Hosts[i].Check(n).Status]))
	}
	return width
}

func widthOf(names []doctor.Name, d *remotedoctor.Document, use map[doctor.Status]string) (width int) {
	for _, n := range names {
		width += columnWidth(n, d, use)
	}
	return width
}

// distinctive are the checks in which a host has a problem, and the titles of the others.
func distinctive(d *remotedoctor.Document) (names []doctor.Name, others []string) {
	for _, n := range doctor.Names() {
		problem := false
		for i := range d.Hosts {
			problem = problem || d.Hosts[i].Check(n).Status.Worse(doctor.Skipped)
		}
		if problem {
			names = append(names, n)
		} else {
			others = append(others, string(n))
		}
	}
	return names, others
}
