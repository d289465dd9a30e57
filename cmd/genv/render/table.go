package render

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

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
	return t.writeText(w, rows)
}

func (t *Table) writeText(w io.Writer, rows [][]string) error {
	widths := t.widths()
	var b strings.Builder
	for _, row := range rows {
		for i, value := range row {
			value = text.PrintableLines(value)
			b.WriteString(value)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(value)))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) header() []string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = c.name
	}
	return names
}

func (t *Table) widths() []int {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = c.width
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(text.PrintableLines(row[i]))+2)
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
