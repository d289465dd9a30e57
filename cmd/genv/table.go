package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// column is a column of a table. Width is 1.4.3's: a column is at least as wide,
// and wider where its longest value needs it.
type column struct {
	name  string
	width int
}

// table is rows under columns, as text for people or CSV for programs.
type table struct {
	columns  []column
	rows     [][]string
	noHeader bool
}

func (t *table) add(values ...string) { t.rows = append(t.rows, values) }

// write prints the table in a format of tableFormats.
func (t *table) write(w io.Writer, format string) error {
	if format == "csv" {
		return t.writeCSV(w)
	}
	return t.writeText(w)
}

// writeCSV follows RFC 4180: see writeRow.
func (t *table) writeCSV(w io.Writer) error {
	rows := t.rows
	if !t.noHeader {
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

func (t *table) writeText(w io.Writer) error {
	widths := t.widths()
	rows := t.rows
	if !t.noHeader {
		rows = append([][]string{t.header()}, rows...)
	}
	var b strings.Builder
	for _, row := range rows {
		for i, value := range row {
			value = printable(value)
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

// shownName is a text that a user chose, in a column of a table: for people cut to the
// length of a name, so that it says no more than that.
func shownName(format, text string) string {
	if format != "tui" || utf8.RuneCountInString(text) <= maxName {
		return text
	}
	return string([]rune(text)[:maxName-1]) + "…"
}

func (t *table) header() []string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = c.name
	}
	return names
}

func (t *table) widths() []int {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = c.width
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(printable(row[i]))+2)
		}
	}
	return widths
}

func formatFlag() cli.Flag {
	return &cli.StringFlag{Name: "format", Value: "tui", Usage: "`FORMAT`: tui, csv or json"}
}

// formatOf checks --format.
func formatOf(c *cli.Context, formats ...string) (string, error) {
	format := given(c, "format").String("format")
	for _, f := range formats {
		if f == format {
			return f, nil
		}
	}
	return "", usage("--format %q: write %s", format, strings.Join(formats, " or "))
}

// writeJSON prints a document on one line.
func writeJSON(w io.Writer, document any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(document); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}
