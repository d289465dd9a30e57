package gpulist

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// column is a column of the table.
type column struct {
	name string
	cell func(*Row, *Output) string
	// least is the width to which it may be cut on a terminal; 0 if it isn't cut.
	least int
	// order is when it is left out if the terminal is too narrow, 1 first; 0 for never.
	order int

	cells []string
	width int
}

func columns() []*column {
	return []*column{
		{name: "HOST", least: 10, cell: func(r *Row, _ *Output) string { return text.Printable(r.Host) }},
		{name: "GPU", cell: func(r *Row, _ *Output) string { return r.GPU.Index.String() }},
		{name: "MODEL", least: 8, order: 6, cell: func(r *Row, _ *Output) string { return modelOf(r.GPU) }},
		{name: "STATE", cell: func(r *Row, _ *Output) string { return string(r.GPU.State) }},
		{name: "MEM GIB", order: 8, cell: func(r *Row, _ *Output) string { return memoryOf(r.GPU) }},
		{name: "UTIL", order: 5, cell: func(r *Row, _ *Output) string { return measured(r.GPU.Utilization, "%") }},
		{name: "TEMP", order: 2, cell: func(r *Row, _ *Output) string { return measured(r.GPU.Temperature, "C") }},
		{name: "POWER", order: 1, cell: func(r *Row, _ *Output) string { return measured(r.GPU.Power, "W") }},
		{name: "ATTACHED TO", least: 11, order: 4, cell: func(r *Row, _ *Output) string { return attachedTo(r.GPU) }},
		{name: "SINCE", order: 3, cell: func(r *Row, o *Output) string { return since(r.GPU, o) }},
		{name: "PROCESSES", least: 14, order: 7, cell: func(r *Row, _ *Output) string { return processesOf(r.GPU) }},
	}
}

func (l *List) writeTable(b *strings.Builder, output *Output) {
	table := columns()
	if l.here() {
		table = table[1:]
	}
	for _, c := range table {
		c.width = len(c.name)
		for i := range l.Rows {
			c.cells = append(c.cells, c.cell(&l.Rows[i], output))
			c.width = max(c.width, ansi.StringWidth(c.cells[i]))
		}
	}
	if !l.here() {
		table[0].least = max(table[0].least, render.Distinct(table[0].cells)+1)
	}
	if output.Width > 0 {
		table = fit(table, output.Width)
	}
	if !output.NoHeader {
		writeLine(b, table, func(c *column) string { return c.name }, "")
	}
	for i := range l.Rows {
		colour := ""
		if output.Colourful {
			colour = colours[l.Rows[i].GPU.State]
		}
		writeLine(b, table, func(c *column) string { return c.cells[i] }, colour)
	}
}

// colours are the escape sequences of the states; the word says it too.
var colours = map[gpus.State]string{
	gpus.Free: "\x1b[32m", gpus.Attached: "\x1b[33m", gpus.Idle: "\x1b[33m", gpus.Unknown: "\x1b[35m",
}

func writeLine(b *strings.Builder, table []*column, cell func(*column) string, colour string) {
	spaces := 0
	for _, c := range table {
		value := ansi.Truncate(cell(c), c.width, "…")
		if value != "" {
			b.WriteString(strings.Repeat(" ", spaces)) // none at the end of a line
			spaces = 0
		}
		spaces += c.width - ansi.StringWidth(value) + render.Gap
		if colour != "" && c.name == "STATE" {
			value = colour + value + "\x1b[0m"
		}
		b.WriteString(value)
	}
	b.WriteByte('\n')
}

// fit leaves columns out and cuts others until they fit.
func fit(table []*column, width int) []*column {
	columns := make([]render.Fit, len(table))
	for i, c := range table {
		columns[i] = render.Fit{Width: c.width, Least: c.least, Order: c.order}
	}
	var shown []*column
	for i, width := range render.FitWidths(columns, width) {
		if width != render.LeftOut {
			table[i].width = width
			shown = append(shown, table[i])
		}
	}
	return shown
}
