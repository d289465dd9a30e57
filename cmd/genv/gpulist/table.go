package gpulist

import (
	"strings"

	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// column is a column of the table.
type column struct {
	draw.Column
	cell func(*Row, *Output) string
}

func columns() []column {
	return []column{
		{draw.Column{Name: "HOST", Least: 10}, func(r *Row, _ *Output) string { return text.Printable(r.Host) }},
		{draw.Column{Name: "GPU"}, func(r *Row, _ *Output) string { return r.GPU.Index.String() }},
		{draw.Column{Name: "MODEL", Least: 8, Order: 6}, func(r *Row, _ *Output) string { return modelOf(r.GPU) }},
		{draw.Column{Name: "STATE"}, func(r *Row, _ *Output) string { return string(r.GPU.State) }},
		{draw.Column{Name: "MEM GIB", Order: 8}, func(r *Row, _ *Output) string { return memoryOf(r.GPU) }},
		{draw.Column{Name: "UTIL", Order: 5}, func(r *Row, _ *Output) string { return measured(r.GPU.Utilization, "%") }},
		{draw.Column{Name: "TEMP", Order: 2}, func(r *Row, _ *Output) string { return measured(r.GPU.Temperature, "C") }},
		{draw.Column{Name: "POWER", Order: 1}, func(r *Row, _ *Output) string { return measured(r.GPU.Power, "W") }},
		{draw.Column{Name: "ATTACHED TO", Least: 11, Order: 4}, func(r *Row, _ *Output) string { return attachedTo(r.GPU) }},
		{draw.Column{Name: "SINCE", Order: 3}, func(r *Row, o *Output) string { return since(r.GPU, o) }},
		{draw.Column{Name: "PROCESSES", Least: 14, Order: 7}, func(r *Row, _ *Output) string { return problemAndProcesses(r.GPU) }},
	}
}

func (l *List) writeTable(b *strings.Builder, output *Output) {
	table := draw.Table{Painter: draw.Painter{Colour: output.Colourful}, Rows: make([]draw.Row, len(l.Rows))}
	for _, c := range columns() {
		if c.Name == "HOST" && l.here() {
			continue
		}
		cells := make([]string, len(l.Rows))
		for i := range l.Rows {
			cells[i] = c.cell(&l.Rows[i], output)
			var as draw.Style
			if c.Name == "STATE" {
				as = colours[l.Rows[i].GPU.State]
			}
			table.Rows[i].Cells = append(table.Rows[i].Cells, draw.Styled(cells[i], as))
		}
		if c.Name == "HOST" {
			c.Least = max(c.Least, draw.Distinct(cells)+1)
		}
		table.Columns = append(table.Columns, c.Column)
	}
	table.Fit(output.Width)
	table.Write(b, !output.NoHeader)
}

// colours are those of the states; the word says it too.
var colours = map[gpus.State]draw.Style{
	gpus.Free: draw.Green, gpus.Attached: draw.Yellow, gpus.Idle: draw.Yellow, gpus.Unknown: draw.Magenta, gpus.Failed: draw.Red,
}
