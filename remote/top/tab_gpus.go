package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/top/draw"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

func gpuColumns() []column {
	return []column{
		hostColumn(),
		{name: "GPU", least: 3, right: true, cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(strconv.Itoa(int(r.gpu.Index))) }},
		{name: "MODEL", least: 8, flexible: true, drop: 6, cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(model(r.gpu.Model)) }, compare: by(func(_ *scene, r *row) string { return r.gpu.Model })},
		{name: "STATE", least: 8, cell: stateCell, compare: byState},
		{name: "MEM", least: 6, right: true, drop: 2, cell: memoryCell, compare: known(usedMemory)},
		{name: "UTIL", least: 4, right: true, drop: 1, cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return percentCell(r.gpu.Utilization) }, compare: known(func(r *row) *int { return r.gpu.Utilization })},
		{name: "TEMP", least: 4, right: true, drop: 8, cell: temperatureCell, compare: known(func(r *row) *int { return r.gpu.Temperature })},
		{name: "POWER", least: 5, right: true, drop: 9, cell: powerCell, compare: known(func(r *row) *float64 { return r.gpu.Power })},
		{name: "SINCE", least: 5, right: true, drop: 5, cell: sinceCell, compare: by(func(_ *scene, r *row) int64 { return -r.gpu.Since().UnixNano() })},
		{name: "ATTACHED TO", least: 11, flexible: true, drop: 4, cell: attachedCell},
		{name: "PROCESSES", least: 10, flexible: true, drop: 7, cell: processesCell, compare: by(func(_ *scene, r *row) int { return len(r.gpu.Processes) })},
		{name: "AGE", least: 5, right: true, drop: 3, cell: ageCell},
	}
}

// byState has the most welcome state first.
func byState(_ *scene, a, b *row) int {
	states := gpus.States()
	return cmp.Compare(slices.Index(states, a.gpu.State), slices.Index(states, b.gpu.State))
}

// stateCell has the mark of the hosts tab, and the state.
func stateCell(s *scene, r *row, _ time.Time) draw.Cell {
	mark := s.mark(r.host, r.gpu)
	return draw.Styled(mark.Text+" "+string(r.gpu.State), mark.Style)
}

func temperatureCell(_ *scene, r *row, _ time.Time) draw.Cell {
	if r.gpu.Temperature == nil {
		return draw.Styled("?", draw.Faint)
	}
	return draw.Text(fmt.Sprintf("%dC", *r.gpu.Temperature))
}

func powerCell(_ *scene, r *row, _ time.Time) draw.Cell {
	if r.gpu.Power == nil {
		return draw.Styled("?", draw.Faint)
	}
	return draw.Text(fmt.Sprintf("%.0fW", *r.gpu.Power))
}

func sinceCell(_ *scene, r *row, now time.Time) draw.Cell {
	if since := r.gpu.Since(); !since.IsZero() {
		return draw.Text(short(now.Sub(since)))
	}
	return draw.Text("")
}

func attachedCell(_ *scene, r *row, _ time.Time) draw.Cell {
	var names []string
	for i := range r.gpu.Attached {
		a := &r.gpu.Attached[i]
		name := cmp.Or(draw.Shown(string(a.User)), "?")
		if env := cmp.Or(a.Name, string(a.EID)); env != "" {
			name += " (" + draw.Shown(env) + ")"
		}
		names = append(names, name)
	}
	return draw.Text(strings.Join(names, ", "))
}

func processesCell(_ *scene, r *row, _ time.Time) draw.Cell {
	var names []string
	for i := range r.gpu.Processes {
		p := &r.gpu.Processes[i]
		names = append(names, fmt.Sprintf("%d %s %s", p.PID, cmp.Or(draw.Shown(string(p.User)), "?"), command(p.Command)))
	}
	return draw.Text(strings.Join(names, ", "))
}

// command is a command line without the folder of its program.
func command(s string) string {
	program, arguments, _ := strings.Cut(s, " ")
	if arguments != "" {
		arguments = " " + arguments
	}
	return draw.Shown(program[strings.LastIndexByte(program, '/')+1:] + arguments)
}

func processColumns() []column {
	return []column{
		hostColumn(),
		{name: "PID", least: 7, right: true, cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(strconv.Itoa(int(r.id.pid))) }, compare: by(func(_ *scene, r *row) int { return int(r.id.pid) })},
		{name: "USER", least: 8, flexible: true, cell: func(_ *scene, r *row, _ time.Time) draw.Cell {
			return draw.Text(cmp.Or(draw.Shown(string(r.process.User)), "?"))
		}, compare: by(func(_ *scene, r *row) string { return string(r.process.User) })},
		{name: "GPU", least: 3, cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(indices(r.process.gpus)) }},
		{name: "MEM", least: 6, right: true, drop: 2, cell: processMemoryCell, compare: known(func(r *row) *int64 { return r.process.memory })},
		{name: "STATE", least: 5, drop: 3, cell: processStateCell},
		{name: "COMMAND", least: 8, flexible: true, drop: 1, cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(command(r.process.Command)) }, compare: by(func(_ *scene, r *row) string { return command(r.process.Command) })},
		{name: "CONTAINER", least: 12, flexible: true, drop: 5, cell: func(_ *scene, r *row, _ time.Time) draw.Cell {
			return draw.Text(draw.Shown(cmp.Or(r.process.ContainerName, r.process.Container)))
		}},
		{name: "AGE", least: 5, right: true, drop: 4, cell: ageCell},
	}
}

func indices(list []*gpus.GPU) string {
	names := make([]string, len(list))
	for i, g := range list {
		names[i] = strconv.Itoa(int(g.Index))
	}
	return strings.Join(names, ",")
}

func processMemoryCell(_ *scene, r *row, _ time.Time) draw.Cell {
	return draw.Text(memory(r.process.memory))
}

// memory is an amount in the unit that suits it.
func memory(bytes *int64) string {
	switch {
	case bytes == nil:
		return "?"
	case *bytes > 0 && *bytes < 10<<30:
		return fmt.Sprintf("%.1fG", float64(*bytes)/(1<<30))
	}
	return gibibytes(bytes) + "G"
}

// processStateCell says whether a process computes, and whether there is a finding.
func processStateCell(s *scene, r *row, _ time.Time) draw.Cell {
	if findingOf(s, r) != nil {
		return draw.Styled("! finding", draw.Red)
	}
	for _, g := range r.process.gpus {
		if g.State != gpus.Idle {
			return draw.Styled("A busy", draw.Cyan)
		}
	}
	return draw.Styled("a idle", draw.Yellow)
}

// findingOf is what was found about a process; nil for nothing.
func findingOf(s *scene, r *row) *live.Finding {
	if list := s.found[about{host: r.id.host, pid: r.id.pid}]; len(list) > 0 {
		return list[0]
	}
	return nil
}
