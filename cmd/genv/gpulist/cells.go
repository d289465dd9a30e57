package gpulist

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// unknown is shown for what the host doesn't report, which is not the same as nothing.
const unknown = "?"

// measured is a number with its unit.
func measured[N int | int64 | float64](n *N, unit string) string {
	if n == nil {
		return unknown
	}
	return strconv.FormatFloat(float64(*n), 'f', 0, 64) + unit
}

// number is a number for programs; empty if it is unknown.
func number[N int | int64 | float64](n *N) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

// modelOf is the model, for people without the maker, which is always the same.
func modelOf(g *gpus.GPU) string {
	if g.Model == "" {
		return unknown
	}
	return text.Printable(gpus.ShortModel(g.Model))
}

// attachedTo are users and environments, as in "alice train, bob 4242". Users choose names:
// one that isn't an ordinary word is quoted.
func attachedTo(g *gpus.GPU) string {
	list := make([]string, len(g.Attached))
	for i := range g.Attached {
		a := &g.Attached[i]
		name := a.Name
		if name == "" {
			name = string(a.EID)
		}
		list[i] = nameOf(a.User) + " " + text.Shown(name)
		for _, instance := range a.Instances {
			list[i] += " on " + string(instance)
		}
	}
	return strings.Join(list, ", ")
}

// nameOf is a user's name, or its uid.
func nameOf(user snapshot.Username) string {
	if user == "" {
		return unknown
	}
	return gpus.ShownUser(user)
}

// processesOf are users, PIDs, memory, commands and containers, as in
// "alice 4242 60.1 GiB python train.py; bob 77 0.5 GiB sleep 60 (container web (cuda:12), started by bob)".
func processesOf(g *gpus.GPU) string {
	list := make([]string, len(g.Processes))
	for i := range g.Processes {
		p := &g.Processes[i]
		words := []string{nameOf(p.User), strconv.Itoa(int(p.PID))}
		if p.Memory != nil {
			words = append(words, text.GiB(*p.Memory))
		}
		if command := commandOf(p.CommandLine()); command != "" {
			words = append(words, command)
		}
		if p.Type.Draws() {
			words = append(words, "("+string(p.Type)+")")
		}
		for _, instance := range p.Instances {
			words = append(words, "on "+string(instance))
		}
		if container := p.ContainerText(); container != "" {
			words = append(words, "("+container+")")
		}
		list[i] = strings.Join(words, " ")
	}
	return strings.Join(list, "; ")
}

// problemAndProcesses is what is wrong with the GPU, before what uses it.
func problemAndProcesses(g *gpus.GPU) string {
	processes := processesOf(g)
	if g.Problem != "" && processes != "" {
		processes = "; " + processes
	}
	return text.Printable(string(g.Problem)) + processes
}

// commandOf is a command line without the folder of its program, in quotes unless all its
// words are ordinary.
func commandOf(command string) string {
	program, _, _ := strings.Cut(command, " ")
	command = strings.TrimPrefix(command, program[:strings.LastIndexByte(program, '/')+1])
	if text.IsMadeOf(command, "._:@/+- ") {
		return strings.TrimSpace(command)
	}
	return text.Quoted(command, snapshot.MaxCommand)
}

// since is for how long the GPU has been attached, in the largest unit, or since when.
func since(g *gpus.GPU, output *Output) string {
	at := g.Since()
	switch {
	case at.IsZero():
		return ""
	case output.Timestamp && output.Format == "csv":
		return at.Format(time.RFC3339)
	case output.Timestamp:
		return at.Local().Format("2006-01-02 15:04")
	}
	age := max(output.Now.Sub(at), 0) // clocks of hosts differ
	for _, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if age >= unit {
			return text.FormatDuration(age.Truncate(unit))
		}
	}
	return "now"
}

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
		{draw.Column{Name: "MEM GIB", Order: 8}, func(r *Row, _ *Output) string { return text.UsedGiB(r.GPU.MemoryUsed, r.GPU.MemoryTotal) }},
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
