package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

func gpuColumns() []column {
	return []column{
		hostColumn(),
		{right("GPU", 3, 0), words(func(r *row) string { return r.gpu.Index.String() }), nil},
		worded(flexible("MODEL", 8, 4), func(r *row) string { return gpus.ShortModel(r.gpu.Model) }),
		{left("STATE", 8, 0), stateCell, byState},
		{right("MEM", 6, 8), memoryCell, known(usedMemory)},
		measured(right("UTIL", 4, 9), "%", func(r *row) *int { return r.gpu.Utilization }),
		measured(right("TEMP", 4, 2), "C", func(r *row) *int { return r.gpu.Temperature }),
		measured(right("POWER", 5, 1), "W", func(r *row) *float64 { return r.gpu.Power }),
		{right("SINCE", 5, 5), sinceCell, by(func(r *row) int64 { return -r.gpu.Since().UnixNano() })},
		{flexible("ATTACHED TO", 11, 6), words(attached), nil},
		{flexible("PROCESSES", 10, 3), words(processes), by(func(r *row) int { return len(r.gpu.Processes) })},
		{right("AGE", 5, 7), ageCell, nil},
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

func sinceCell(_ *scene, r *row, now time.Time) draw.Cell {
	if since := r.gpu.Since(); !since.IsZero() {
		return draw.Text(short(now.Sub(since)))
	}
	return draw.Text("")
}

func attached(r *row) string {
	var names []string
	for i := range r.gpu.Attached {
		a := &r.gpu.Attached[i]
		name := cmp.Or(draw.Shown(string(a.User)), "?")
		if env := cmp.Or(a.Name, string(a.EID)); env != "" {
			name += " (" + draw.Shown(env) + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

func processes(r *row) string {
	var names []string
	if r.gpu.Problem != "" {
		names = append(names, draw.Shown(string(r.gpu.Problem)))
	}
	for i := range r.gpu.Processes {
		p := &r.gpu.Processes[i]
		names = append(names, fmt.Sprintf("%d %s %s", p.PID, cmp.Or(draw.Shown(string(p.User)), "?"), command(p.Command)))
	}
	return strings.Join(names, ", ")
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
		counted(right("PID", 7, 0), func(r *row) int { return int(r.id.pid) }),
		worded(flexible("USER", 8, 0), func(r *row) string { return cmp.Or(string(r.process.User), "?") }),
		{left("GPU", 3, 0), words(indices), nil},
		{
			right("MEM", 6, 8), words(func(r *row) string { return memory(r.process.memory) }),
			known(func(r *row) *int64 { return r.process.memory }),
		},
		{left("STATE", 5, 7), processStateCell, nil},
		worded(flexible("COMMAND", 8, 9), func(r *row) string { return command(r.process.Command) }),
		{flexible("CONTAINER", 12, 5), words(func(r *row) string {
			return cmp.Or(r.process.ContainerName, r.process.Container)
		}), nil},
		{right("AGE", 5, 6), ageCell, nil},
	}
}

func indices(r *row) string {
	names := make([]string, len(r.process.gpus))
	for i, g := range r.process.gpus {
		names[i] = g.Index.String()
	}
	return strings.Join(names, ",")
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
