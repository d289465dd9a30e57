package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/web"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// html is the format of a file with a picture, to mail or to print.
const html = "html"

// write prints a document in the format that a request asks for: as a table, as CSV, as
// JSON, or as a page. What else is to be said of it goes to stderr.
func write(p *command.Program, d *usage.Report, output render.Output) error {
	switch output.Format {
	case "json":
		return render.WriteJSON(p.Out, d)
	case "csv":
		return writeCSV(p.Out, d, output)
	case html:
		return web.WriteReport(p.Out, d)
	}
	return writeText(p, d, output)
}

// writeCSV prints the figures as they are in JSON, under the same names.
func writeCSV(w io.Writer, d *usage.Report, output render.Output) error {
	var rows [][]string
	if !output.NoHeader {
		rows = append(rows, []string{
			"key", "attached_seconds", "used_seconds", "computing_seconds", "idle_seconds", "unknown_seconds",
			"unmeasured_seconds", "memory_mib_seconds", "share", "peak_devices", "findings", "terminated", "detached",
		})
	}
	for i := range d.Rows {
		r := &d.Rows[i]
		row := []string{r.Key}
		for _, n := range []int64{r.Attached, r.Used, r.Computing, r.Idle, r.Unknown, r.Unmeasured, r.Memory} {
			row = append(row, fmt.Sprint(n))
		}
		row = append(row, fmt.Sprintf("%.4f", r.Share), peak(r))
		for _, n := range []int64{r.Findings, r.Terminated, r.Detached} {
			row = append(row, fmt.Sprint(n))
		}
		rows = append(rows, row)
	}
	return render.WriteCSV(w, rows)
}

// peak is the most devices at a time; empty if it isn't known.
func peak(r *usage.ReportRow) string {
	if r.Peak == nil {
		return ""
	}
	return fmt.Sprint(*r.Peak)
}

func writeText(p *command.Program, d *usage.Report, output render.Output) error {
	if len(d.Rows) == 0 {
		fmt.Fprintf(p.Err, "No usage is recorded from %s to %s.\n", d.Since.Format(shortTime),
			d.Until.Format(shortTime))
	} else if _, err := io.WriteString(p.Out, table(d, output, render.Width(p.Out))); err != nil {
		return err
	}
	writeSummary(p.Err, d)
	return nil
}

const shortTime = "2006-01-02 15:04"

func writeSummary(w io.Writer, d *usage.Report) {
	t := &d.Total
	fmt.Fprintf(w, "%s to %s: %s GPU hours attached, %s used, %s idle, peak %s.", d.Since.Format(shortTime),
		d.Until.Format(shortTime),
		usage.Hours(t.Attached), usage.Hours(t.Used), usage.Hours(t.Idle), text.Plural(int(*t.Peak), "GPU"))
	if d.LeftOut > 0 {
		fmt.Fprintf(w, " %s left out.", text.Plural(d.LeftOut, "line"))
	}
	fmt.Fprintln(w)
	if d.Begun.After(d.Since) && d.Begun.Unix() > 0 {
		fmt.Fprintf(w, "Usage is kept since %s.\n", d.Begun.Format(shortTime))
	}
	if d.Missing > 0 {
		fmt.Fprintf(w, "Of %s of this time nothing is known: no controller ran, or nothing could be kept.\n",
			usage.ShortTime(d.Missing))
	}
}

// keyOf is a key as people see it: names come from hosts.
func keyOf(by, key string) string {
	switch {
	case key == "":
		return "(unknown)"
	case by == usage.ByUser && key != string(usage.Other):
		return gpus.ShownUser(snapshot.Username(key))
	}
	return text.PrintableLines(key)
}

// table is the rows as text, with as many columns as a terminal of a width has room for; all with 0, for none.
func table(d *usage.Report, output render.Output, width int) string {
	hours := func(of func(*usage.ReportRow) int64) func(*usage.ReportRow) string {
		return func(r *usage.ReportRow) string { return usage.Hours(of(r)) }
	}
	count := func(of func(*usage.ReportRow) int64) func(*usage.ReportRow) string {
		return func(r *usage.ReportRow) string { return fmt.Sprint(of(r)) }
	}
	columns := []struct {
		title string
		order int // in which it is left out on a narrow terminal, 1 first
		cell  func(*usage.ReportRow) string
	}{
		{strings.ToUpper(d.By), 0, func(r *usage.ReportRow) string { return keyOf(d.By, r.Key) }},
		{"ATTACHED", 0, hours(func(r *usage.ReportRow) int64 { return r.Attached })},
		{"SHARE", 6, func(r *usage.ReportRow) string { return usage.Percent(r.Share) }},
		{"USED", 7, hours(func(r *usage.ReportRow) int64 { return r.Used })},
		{"COMPUTING", 3, hours(func(r *usage.ReportRow) int64 { return r.Computing })},
		{"IDLE", 8, hours(func(r *usage.ReportRow) int64 { return r.Idle })},
		{"UNKNOWN", 2, hours(func(r *usage.ReportRow) int64 { return r.Unknown })},
		{"PEAK", 4, peak},
		{"FINDINGS", 5, count(func(r *usage.ReportRow) int64 { return r.Findings })},
		{"ENDED", 1, count(func(r *usage.ReportRow) int64 { return r.Terminated })},
		{"DETACHED", 1, count(func(r *usage.ReportRow) int64 { return r.Detached })},
	}
	t := draw.Table{Rows: make([]draw.TableRow, len(d.Rows))}
	for i, c := range columns {
		t.Columns = append(t.Columns, draw.ColumnLayout{Name: c.title, Order: c.order, Right: i > 0})
		if output.NoHeader {
			t.Columns[i].Name = ""
		}
		for j := range d.Rows {
			t.Rows[j].Cells = append(t.Rows[j].Cells, draw.Text(c.cell(&d.Rows[j])))
		}
	}
	t.Columns[0].Least = 32 // characters of a key
	t.Fit(width)
	var b strings.Builder
	t.Write(&b, !output.NoHeader)
	return b.String()
}
