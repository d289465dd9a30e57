// Package checkup prints the results of `genv doctor` and `genv remote doctor`, and has their exit code.
//
//	err := checkup.WriteHost(p.Out, document, checkup.StyleOf(p.Program))
//	return checkup.Exit(document.Status)
package checkup

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	remotedoctor "github.com/seed-3119e985/genv/remote/doctor"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// Style is the style of the output.
type Style struct {
	Width     int // of the terminal; 0 if unknown
	Colourful bool
	All       bool // print details of passed checks, too
	TableOnly bool // leave out details
}

// StyleOf is the style for stdout.
func StyleOf(p command.Program) Style {
	return Style{Width: render.Width(p.Out), Colourful: render.Colourful(p.Out, p.Getenv)}
}

// Exit returns exit code 3 if a check failed, or was not made because the command was stopped.
func Exit(status doctor.CheckStatus) error {
	if status == doctor.Failed || status == doctor.Skipped {
		return &command.ExitError{Code: command.ExitSomeFailed}
	}
	return nil
}

var words = map[doctor.CheckStatus]struct {
	word, heading string
	style         draw.Style
}{
	doctor.OK:      {"ok", "OK", draw.Green},
	doctor.Skipped: {"-", "Skipped", draw.Faint},
	doctor.Warning: {"warn", "Warnings", draw.Yellow},
	doctor.Failed:  {"FAIL", "Failed", draw.Red + ";" + draw.Bold},
}

func (s *Style) cell(word string, status doctor.CheckStatus) draw.Cell {
	if !s.Colourful {
		return draw.Text(word)
	}
	return draw.Styled(word, words[status].style)
}

func (s *Style) coloured(word string, status doctor.CheckStatus) string {
	return draw.Painter{Colour: s.Colourful}.Paint(word, s.cell(word, status)[0].Style)
}

func (s *Style) wrap(b *strings.Builder, indent int, text string) {
	b.WriteString(render.Wrap(text, indent, s.Width) + "\n")
}

// WriteHost prints a row per check, with the next step below.
func WriteHost(w io.Writer, d *doctor.HostDocument, s Style) error {
	var b strings.Builder
	s.writeChecks(&b, d.Checks)
	if !d.Root {
		b.WriteString("This is what a user without root can see; `sudo genv doctor` may see more.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s *Style) writeChecks(b *strings.Builder, checks []doctor.Check) {
	const name, status = 10, 9
	fmt.Fprintf(b, "%-*s%-*s%s\n", name, "CHECK", status, "STATUS", "FOUND")
	for _, c := range checks {
		fmt.Fprintf(b, "%-*s%s", name, c.Name, s.coloured(fmt.Sprintf("%-*s", status, c.Status), c.Status))
		s.wrap(b, name+status, text.OneLine(c.Detail))
		if c.NextStep != "" {
			s.writeItem(b, strings.Repeat(" ", name+status)+"next: ", c.NextStep)
		}
	}
}

// writeDetails writes each cause once; with All also what passed.
func (s *Style) writeDetails(b *strings.Builder, d *remotedoctor.FleetReport) {
	statuses := []doctor.CheckStatus{doctor.Failed, doctor.Warning}
	if s.All {
		statuses = []doctor.CheckStatus{doctor.OK, doctor.Skipped, doctor.Warning, doctor.Failed}
	}
	for _, status := range statuses {
		heading := s.coloured(words[status].heading, status) + "\n"
		for _, name := range doctor.Names() {
			found := checksOf(d, name, status)
			if len(found) == 0 {
				continue
			}
			b.WriteString(heading + "  " + string(name) + "\n")
			heading = ""
			s.writeCauses(b, found)
		}
	}
}

func checksOf(d *remotedoctor.FleetReport, name doctor.Name, status doctor.CheckStatus) []remote.Failure {
	var found []remote.Failure
	for i := range d.Hosts {
		if c := d.Hosts[i].Check(name); c.Status == status {
			found = append(found, remote.Failure{
				Host: d.Hosts[i].Host, Class: remote.Class(c.Cause), Error: c.Detail, NextStep: c.NextStep,
			})
		}
	}
	return found
}

func (s *Style) writeCauses(b *strings.Builder, found []remote.Failure) {
	for _, same := range render.ByClass(remote.Causes(found)) {
		chunk := len(same)
		if s.All { // print all causes, else the first few
			chunk = 1
		}
		for some := range slices.Chunk(same, chunk) {
			for _, line := range render.CauseLines(some) {
				s.writeItem(b, "    ", line)
			}
		}
		for _, step := range render.NextSteps(same) {
			if step != "" {
				s.writeItem(b, "    next: ", step)
			}
		}
	}
}

func (s *Style) writeItem(b *strings.Builder, before, item string) {
	b.WriteString(before)
	s.wrap(b, len(before), text.OneLine(item))
}

// WriteFleet prints problems, and then the table, which stays on the screen: a row per host, a column per check.
func WriteFleet(w io.Writer, d *remotedoctor.FleetReport, s Style) error {
	var b strings.Builder
	if !s.TableOnly {
		if len(d.Controllers) > 0 {
			s.writeChecks(&b, d.Controllers)
		}
		s.writeDetails(&b, d)
	}
	s.writeTable(&b, d)
	if !s.TableOnly {
		fmt.Fprintf(&b, "%s: %d ok, %d with warnings, %d failed\n", text.Plural(len(d.Hosts), "host"), d.OK,
			d.Warnings, d.Failures)
		writeOlder(&b, d)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

var titles = map[doctor.Name]string{
	doctor.HostKey: "KEY", doctor.PIDNamespace: "PIDNS", doctor.Services: "UNITS",
	doctor.Controller: "CTRL",
}

// writeTable leaves out columns without a problem if the terminal is too narrow.
func (s *Style) writeTable(b *strings.Builder, d *remotedoctor.FleetReport) {
	table := draw.Table{
		Painter: draw.Painter{Colour: s.Colourful}, Columns: []draw.ColumnLayout{{Name: "HOST"}},
		Rows: make([]draw.TableRow, len(d.Hosts)),
	}
	for i := range d.Hosts {
		table.Rows[i].Cells = []draw.Cell{draw.Text(text.Printable(d.Hosts[i].Host))}
	}
	for _, n := range doctor.Names() {
		column := draw.ColumnLayout{Name: cmp.Or(titles[n], strings.ToUpper(string(n))), Order: 1}
		for i := range d.Hosts {
			status := d.Hosts[i].Check(n).Status
			table.Rows[i].Cells = append(table.Rows[i].Cells, s.cell(words[status].word, status))
			if status.Worse(doctor.Skipped) {
				column.Order = 0
			}
		}
		table.Columns = append(table.Columns, column)
	}
	table.Fit(s.Width)
	table.Write(b, true)
	if left := table.LeftOut(); len(left) > 0 {
		s.wrap(b, 0, "Columns left out, in which no host has a problem: "+strings.Join(left, ", "))
	}
}

// writeOlder counts hosts with an older genv that causes no problem, as after an upgrade of this machine.
func writeOlder(b *strings.Builder, d *remotedoctor.FleetReport) {
	var versions []string
	for i := range d.Hosts {
		h := &d.Hosts[i]
		version := text.OneLine(h.Genv.Version)
		own, here := numbers(version), numbers(d.Genv.Version)
		if h.Check(doctor.Genv).Status == doctor.OK && own != nil && slices.Compare(own, here) < 0 {
			versions = append(versions, version)
		}
	}
	if versions == nil {
		return
	}
	slices.Sort(versions)
	fmt.Fprintf(b, "genv on %s is older (%s, here %s): genv remote install -H @all --upgrade\n",
		text.Plural(len(versions), "host"), strings.Join(slices.Compact(versions), ", "), d.Genv.Version)
}

var startsWithNumbers = text.Pattern(`^v?\d{1,9}(\.\d{1,9})+`)

// numbers are the leading numbers of a version; nil for none.
func numbers(version string) (found []int) {
	if !startsWithNumbers().MatchString(version) {
		return nil
	}
	for number := range strings.SplitSeq(strings.TrimPrefix(startsWithNumbers().FindString(version), "v"), ".") {
		n, _ := strconv.Atoi(number) // at most 9 digits
		found = append(found, n)
	}
	return found
}
