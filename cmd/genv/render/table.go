package render

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// Output is a format: text for people (tui), csv or json.
type Output struct {
	Format    string
	NoHeader  bool
	Timestamp bool // times instead of ages
}

// Table returns an empty table. A column is its name and least width: "USER:16".
func (o Output) Table(columns ...string) *Table {
	t := &Table{output: o}
	for _, c := range columns {
		name, width, _ := strings.Cut(c, ":")
		least, _ := strconv.Atoi(width) // 0 without a width
		t.columns = append(t.columns, draw.ColumnLayout{Name: name, Width: least})
	}
	return t
}

// Name shortens a text that a user chose, for people only.
func (o Output) Name(text string) string {
	if o.Format != "tui" {
		return text
	}
	return Name(text)
}

// Name shortens a text that a user chose to the length of a name, so that it can't say more.
func Name(chosen string) string { return text.Shorten(chosen, maxName) }

const maxName = 32 // characters

// Age is the time since a date, or the date with Timestamp.
func (o Output) Age(d snapshot.Date, now time.Time) string {
	if o.Timestamp || d.IsZero() {
		return d.String()
	}
	return Age(now.Sub(d.In(now.Location())))
}

// Table is rows under columns.
type Table struct {
	output  Output
	columns []draw.ColumnLayout
	rows    [][]string
}

// Add appends a row.
func (t *Table) Add(values ...string) { t.rows = append(t.rows, values) }

// Len is the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// Write prints text or CSV.
func (t *Table) Write(w io.Writer) error {
	if t.output.Format != "csv" {
		return t.writeText(w, Width(w))
	}
	rows := t.rows
	if !t.output.NoHeader {
		head := make([]string, len(t.columns))
		for i, c := range t.columns {
			head[i] = c.Name
		}
		rows = append([][]string{head}, rows...)
	}
	return WriteCSV(w, rows)
}

const (
	leastCell = 12 // characters on a narrow terminal
	leastLast = 24 // of the last cell, which is wrapped
)

// writeText uses 1.4.3's width, or that of a narrower terminal. It wraps the last cell of a row.
func (t *Table) writeText(w io.Writer, terminal int) error {
	last := len(t.columns) - 1
	drawn, longest := t.drawn(), 0
	if !t.output.NoHeader {
		longest = len(t.columns[last].Name)
	}
	for _, row := range t.rows {
		row[last] = text.PrintableLines(row[last])
		longest = max(longest, draw.Width(row[last]))
	}
	if terminal == 0 {
		drawn.Length = utf8.RuneCountInString // as in 1.4.3: scripts read this output
	}
	at := drawn.Fit(0)
	if terminal > 0 && at+longest > terminal {
		t.narrow(drawn)
		at = drawn.Fit(terminal - min(longest, leastLast))
	}
	var b strings.Builder
	write := func(cells []draw.Cell, value string) {
		if left := terminal - at; left >= leastLast && draw.Width(value) > left {
			value = strings.ReplaceAll(ansi.Wrap(value, left, ""), "\n", "\n"+strings.Repeat(" ", at))
		}
		b.WriteString(drawn.Line(cells) + value + "\n")
	}
	if !t.output.NoHeader {
		write(drawn.Head(), t.columns[last].Name)
	}
	for i, row := range drawn.Rows {
		write(row.Cells, t.rows[i][last])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) drawn() *draw.Table {
	drawn := &draw.Table{Columns: make([]draw.ColumnLayout, len(t.columns)), Rows: make([]draw.TableRow, len(t.rows))}
	for j, c := range t.columns[:len(t.columns)-1] {
		if drawn.Columns[j].Width = c.Width - draw.Gap; !t.output.NoHeader {
			drawn.Columns[j].Name = c.Name
		}
		for i, row := range t.rows {
			drawn.Rows[i].Cells = append(drawn.Rows[i].Cells, draw.Text(text.PrintableLines(row[j])))
		}
	}
	for i := range drawn.Rows {
		drawn.Rows[i].Cells = append(drawn.Rows[i].Cells, nil)
	}
	return drawn
}

// narrow lets the first column shrink while its names stay distinct, and the others to a few characters.
func (t *Table) narrow(drawn *draw.Table) {
	names := []string{t.columns[0].Name}
	for _, row := range drawn.Rows {
		names = append(names, row.Cells[0].Plain())
	}
	for j := range drawn.Columns {
		drawn.Columns[j].Width, drawn.Columns[j].Least = 0, max(leastCell, draw.Width(t.columns[j].Name))
	}
	drawn.Columns[0].Least = max(drawn.Columns[0].Least, draw.Distinct(names)+1)
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

// WriteCSV prints rows by RFC 4180, but with Unix newlines.
func WriteCSV(w io.Writer, rows [][]string) error {
	var b strings.Builder
	for _, row := range rows {
		for i, value := range row {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(cell(value))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// plainNumber is safe in a spreadsheet, even with a sign.
var plainNumber = text.Pattern(`^[-+]?[0-9]+(\.[0-9]+)?$`)

// cell quotes a value for CSV. An apostrophe prevents that a spreadsheet takes it for a formula. Quotes also protect
// from spreadsheets that split cells at semicolons or tabs.
func cell(value string) string {
	formula := value != "" && strings.ContainsRune("=+-@\t\r\n＝＋－＠", firstRune(value)) &&
		!plainNumber().MatchString(value)
	if formula {
		value = "'" + value
	}
	if formula || value == `\.` || strings.ContainsAny(value, "\",;\t\r\n") || unicode.IsSpace(firstRune(value)) {
		return `"` + strings.ReplaceAll(value, `"`, `""`) + `"`
	}
	return value
}

func firstRune(value string) rune {
	r, _ := utf8.DecodeRuneInString(value)
	return r
}
