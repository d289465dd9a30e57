package trial

import (
	"fmt"
	"io"
	"strings"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/recording/replay"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// figures are those of a row, with their titles and their names in CSV.
var figures = []struct {
	title, name string
	of          func(*replay.Counts) int
}{
	{"FOUND", "found", func(c *replay.Counts) int { return c.Found }},
	{"WARNED", "warned", func(c *replay.Counts) int { return c.Warned }},
	{"HELD", "held", func(c *replay.Counts) int { return c.Held }},
	{"ENDED", "terminated", func(c *replay.Counts) int { return c.Terminated }},
	{"DETACHED", "detached", func(c *replay.Counts) int { return c.Detached }},
}

// writeCSV prints the rows as they are in JSON.
func writeCSV(w io.Writer, d *Document, output render.Output) error {
	var rows [][]string
	if !output.NoHeader {
		header := []string{"user", "rule"}
		for _, f := range figures {
			header = append(header, "was_"+f.name, "would_"+f.name)
		}
		rows = append(rows, header)
	}
	for i := range d.Rows {
		r := &d.Rows[i]
		row := []string{string(r.User), string(r.Rule)}
		for _, f := range figures {
			row = append(row, fmt.Sprint(f.of(&r.Was)), fmt.Sprint(f.of(&r.Would)))
		}
		rows = append(rows, row)
	}
	return render.WriteCSV(w, rows)
}

// writeText prints a table, the first cases, and what can't be known.
func (p *program) writeText(d *Document, output render.Output) error {
	output.Format = "tui"
	columns := []render.Column{render.Col("USER", 6), render.Col("RULE", 6)}
	for _, f := range figures {
		columns = append(columns, render.Col(f.title, len(f.title)+render.Gap))
	}
	table := output.Table(columns...)
	add := func(user, rule string, r *Row) {
		row := []string{user, rule}
		for _, f := range figures {
			row = append(row, change(f.of(&r.Was), f.of(&r.Would)))
		}
		table.Add(row...)
	}
	for i := range d.Rows {
		r := &d.Rows[i]
		user := gpus.ShownUser(r.User)
		if r.User == "" {
			user = "(unknown)"
		}
		add(user, string(r.Rule), r)
	}
	if len(d.Rows) == 0 {
		fmt.Fprintln(p.Out, "Nothing was found, and nothing would have been.")
	} else {
		add("all", "", &d.Total)
		if err := table.Write(p.Out); err != nil {
			return err
		}
	}
	p.writeCases("Would have been found or acted on, and was not:", d.Begin)
	p.writeCases("Was found or acted on, and would not have been:", d.End)
	p.writeAbout(d)
	return nil
}

// change is what was, what would have been, and by how much it differs.
func change(was, would int) string {
	if was == would {
		return fmt.Sprint(was)
	}
	return fmt.Sprintf("%d → %d (%+d)", was, would, would-was)
}

func (p *program) writeCases(title string, cases []Case) {
	if len(cases) == 0 {
		return
	}
	fmt.Fprintf(p.Out, "\n%s\n", title)
	for i := range cases {
		c := &cases[i]
		host := ""
		if c.Host != "" {
			host = text.PrintableLines(string(c.Host)) + ": "
		}
		fmt.Fprintf(p.Out, "  %s  %s%s%s\n", c.Since.Local().Format(shortTime), host, text.PrintableLines(c.Line), acted(c))
	}
}

// acted says what is done in a case.
func acted(c *Case) string {
	if c.Acted.IsZero() {
		return ""
	}
	what := ""
	switch {
	case c.Terminated > 0 && c.Detached > 0:
		what = processes(c.Terminated) + " ended, " + render.Plural(c.Detached, "GPU") + " detached"
	case c.Terminated > 0:
		what = processes(c.Terminated) + " ended"
	case c.Detached > 0:
		what = render.Plural(c.Detached, "GPU") + " detached"
	default:
		return ""
	}
	return fmt.Sprintf(": %s after %s", what, text.ShortDuration(c.Acted.Sub(c.Since)))
}

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}

// writeAbout says which time and which policies this is about, and what can't be known.
func (p *program) writeAbout(d *Document) {
	tried := d.Policy
	if tried == "" {
		tried = "the defaults"
	}
	fmt.Fprintf(p.Err, "%s to %s: %s. What was (%s) → what %s would have done.\n", d.Since.Format(shortTime), d.Until.Format(shortTime),
		render.Plural(d.Judgements, "judgement"), text.PrintableLines(strings.Join(d.Policies, ", then ")), text.PrintableLines(tried))
	if len(d.Not) == 0 {
		return
	}
	fmt.Fprintln(p.Err, "Not known:")
	for _, n := range d.Not {
		fmt.Fprintln(p.Err, "- "+render.Wrap(text.PrintableLines(n.Text), 2, render.Width(p.Err)))
	}
}
