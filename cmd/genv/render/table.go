package render

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Column is a column of a table.
type Column struct {
	name  string
	width int
}

// Col is a column of a name and at least a width, which is 1.4.3's.
func Col(name string, width int) Column { return Column{name, width} }

// Output is how a command prints: as text for people (tui), or as csv or json.
type Output struct {
	Format    string
	NoHeader  bool
	Timestamp bool // times instead of ages
}

// Table is an empty table, to be printed as this output.
func (o Output) Table(columns ...Column) *Table { return &Table{output: o, columns: columns} }

// Name is a text that a user chose, for a table: for people cut to the length of a
// name, so that it says no more than that.
func (o Output) Name(text string) string {
	if o.Format != "tui" {
		return text
	}
	return Name(text)
}

// Name is a text that a user chose, cut to the length of a name.
func Name(text string) string {
	if utf8.RuneCountInString(text) <= maxName {
		return text
	}
	return string([]rune(text)[:maxName-1]) + "…"
}

// maxName is how many characters of a text that a user chose are shown to people.
const maxName = 32

// Age prints the time since a date, or the date itself if there is none or if
// timestamps are asked for.
func (o Output) Age(d snapshot.Date, now time.Time) string {
	if o.Timestamp || d.IsZero() {
		return d.String()
	}
	return Age(now.Sub(d.In(time.Local)))
}

// Table is rows under columns.
type Table struct {
	output  Output
	columns []Column
	rows    [][]string
}

// Add appends a row.
func (t *Table) Add(values ...string) { t.rows = append(t.rows, values) }

// Len is the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// Write prints the table as text, or as CSV.
func (t *Table) Write(w io.Writer) error {
	rows := t.rows
	if !t.output.NoHeader {
		rows = append([][]string{t.header()}, rows...)
	}
	if t.output.Format == "csv" {
		return WriteCSV(w, rows)
	}
	return t.writeText(w, rows, Width(w))
}

// writeText prints the rows as wide as 1.4.3 does or, if the terminal is narrower than
// that, as wide as it is.
func (t *Table) writeText(w io.Writer, rows [][]string, terminal int) error {
	for _, row := range rows {
		for i := range row {
			row[i] = text.PrintableLines(row[i])
		}
	}
	length := utf8.RuneCountInString // as in 1.4.3: scripts read this output
	if terminal > 0 {
		length = ansi.StringWidth
	}
	widths := t.widths(rows, length)
	if terminal > 0 && longest(rows, widths, length) > terminal {
		widths = t.fit(rows, terminal)
	}
	var b strings.Builder
	for _, row := range rows {
		writeRow(&b, row, widths, length, terminal)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// longest is the length of the longest line.
func longest(rows [][]string, widths []int, length func(string) int) (most int) {
	before := 0
	for _, w := range widths[:len(widths)-1] {
		before += w
	}
	for _, row := range rows {
		most = max(most, before+length(row[len(row)-1]))
	}
	return most
}

const (
	leastCell = 12 // characters of a cell that are shown on a narrow terminal
	leastLast = 24 // of the last one, which is continued below
)

// fit are the widths on a terminal that is narrow: the first column may be cut as long as
// its names differ, the others to a few characters, and the last one is continued below.
func (t *Table) fit(rows [][]string, terminal int) []int {
	columns := make([]Fit, len(t.columns))
	last := len(columns) - 1
	for i := range columns {
		var cells []string
		for _, row := range rows {
			cells = append(cells, row[i])
			columns[i].Width = max(columns[i].Width, ansi.StringWidth(row[i]))
		}
		columns[i].Least = max(leastCell, ansi.StringWidth(t.columns[i].name))
		switch i {
		case last:
			columns[i] = Fit{Width: min(columns[i].Width, leastLast)} // it gets what is left
		case 0:
			columns[i].Least = max(columns[i].Least, Distinct(cells)+1)
		}
	}
	widths := FitWidths(columns, terminal)
	for i := range widths[:last] {
		widths[i] += Gap
	}
	return widths
}

// writeRow writes a row: what is wider than its column is cut, and the last cell is
// continued on lines below, on a terminal.
func writeRow(b *strings.Builder, row []string, widths []int, length func(string) int, terminal int) {
	last, at := len(row)-1, 0
	for i, value := range row[:last] {
		if terminal > 0 && length(value) > widths[i]-Gap {
			value = ansi.Truncate(value, widths[i]-Gap, "…")
		}
		b.WriteString(value)
		b.WriteString(strings.Repeat(" ", widths[i]-length(value)))
		at += widths[i]
	}
	value := row[last]
	if terminal > 0 && at+length(value) > terminal && terminal-at >= leastLast {
		value = strings.ReplaceAll(ansi.Wrap(value, terminal-at, ""), "\n", "\n"+strings.Repeat(" ", at))
	}
	b.WriteString(value)
	b.WriteByte('\n')
}

func (t *Table) header() []string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = c.name
	}
	return names
}

// widths are those of 1.4.3, and wider where a cell is. A column has two spaces behind it.
func (t *Table) widths(rows [][]string, length func(string) int) []int {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = c.width
		for _, row := range rows[len(rows)-len(t.rows):] {
			widths[i] = max(widths[i], length(row[i])+Gap)
		}
	}
	return widths
}

// WriteJSON prints a document on one line.
func WriteJSON(w io.Writer, document any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(document); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}
