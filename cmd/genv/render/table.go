package render

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Column is a column of a table. Width is 1.4.3's: a column is at least as wide,
// and wider where its longest value needs it.
type Column struct {
	Name  string
	Width int
}

// Col is a column of a name and at least a width.
func Col(name string, width int) Column { return Column{Name: name, Width: width} }

// Table is rows under columns, as text for people or CSV for programs.
type Table struct {
	Columns  []Column
	Rows     [][]string
	NoHeader bool
}

func (t *Table) Add(values ...string) { t.Rows = append(t.Rows, values) }

// write prints the table in a format of tableFormats.
func (t *Table) Write(w io.Writer, format string) error {
	if format == "csv" {
		return t.WriteCSV(w)
	}
	return t.writeText(w)
}

// writeCSV follows RFC 4180: see writeRow.
func (t *Table) WriteCSV(w io.Writer) error {
	rows := t.Rows
	if !t.NoHeader {
		rows = append([][]string{t.header()}, rows...)
	}
	var b strings.Builder
	for _, row := range rows {
		if err := writeRow(&b, row); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) writeText(w io.Writer) error {
	widths := t.widths()
	rows := t.Rows
	if !t.NoHeader {
		rows = append([][]string{t.header()}, rows...)
	}
	var b strings.Builder
	for _, row := range rows {
		for i, value := range row {
			value = Printable(value)
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

// maxName is how many characters of a text that a user chose are shown to people.
const maxName = 32

// ShownName is a text that a user chose, in a column of a table: for people cut to the
// length of a name, so that it says no more than that.
func ShownName(format, text string) string {
	if format != "tui" || utf8.RuneCountInString(text) <= maxName {
		return text
	}
	return string([]rune(text)[:maxName-1]) + "…"
}

func (t *Table) header() []string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return names
}

func (t *Table) widths() []int {
	widths := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		widths[i] = c.Width
		for _, row := range t.Rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(Printable(row[i]))+2)
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
