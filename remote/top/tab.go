package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

type tabID int

const (
	tabHosts tabID = iota
	tabGPUs
	tabUsers
	tabFindings
	tabProcesses
	tabHistory
	tabFailed
	tabCount
)

var tabs = [tabCount]struct {
	name    string
	columns func() []column
}{
	{"hosts", hostColumns},
	{"GPUs", gpuColumns},
	{"users", userColumns},
	{"findings", findingColumns},
	{"processes", processColumns},
	{"history", historyColumns},
	{"failed", failedColumns},
}

type column struct {
	draw.ColumnLayout
	cell    func(*tabRow) draw.Cell
	compare func(a, b *tabRow) int // nil if not sortable
}

func flexible(name string, least, order int) draw.ColumnLayout {
	return draw.ColumnLayout{Name: name, Width: least, Least: least, Order: order}
}

func left(name string, width, order int) draw.ColumnLayout {
	return draw.ColumnLayout{Name: name, Width: width, Order: order}
}

func right(name string, width, order int) draw.ColumnLayout {
	return draw.ColumnLayout{Name: name, Width: width, Order: order, Right: true}
}

func worded(as draw.ColumnLayout, value func(*tabRow) string) column {
	return column{as, words(value), by(value)}
}

func counted(as draw.ColumnLayout, value func(*tabRow) int) column {
	return column{as, words(func(r *tabRow) string { return strconv.Itoa(value(r)) }), by(value)}
}

func utilizationCell(r *tabRow) draw.Cell {
	n := utilization(r)
	if n == nil {
		return draw.Styled("?", draw.Faint)
	}
	return draw.Text(fmt.Sprintf("%d%%", *n))
}

func words(value func(*tabRow) string) func(*tabRow) draw.Cell {
	return func(r *tabRow) draw.Cell { return draw.Text(draw.Shown(value(r))) }
}

// columns returns a tab's columns. s may be nil.
func (s *scene) columns(tab tabID) []column {
	if tab == tabHosts {
		return append(hostColumns(), s.rareColumns()...)
	}
	return tabs[tab].columns()
}

func by[T cmp.Ordered](value func(*tabRow) T) func(a, b *tabRow) int {
	return func(a, b *tabRow) int { return cmp.Compare(value(a), value(b)) }
}

// known compares rows by an amount. Unknown is smallest.
func known[N int | int64](amount func(*tabRow) *N) func(a, b *tabRow) int {
	return by(func(r *tabRow) N { return *cmp.Or(amount(r), new(N(-1))) })
}

func hostColumn() column {
	return worded(flexible("HOST", 10, 0), func(r *tabRow) string { return string(r.id.host) })
}

func gpuColumns() (list []column) {
	for _, c := range gpus.Columns() {
		if c.Name == "" {
			continue
		}
		as := column{ColumnLayout: c.ColumnLayout, cell: func(r *tabRow) draw.Cell {
			s := c.Text(r.gpu, func(t time.Time) string { return short(r.now().Sub(t)) })
			if s == "?" {
				return draw.Styled(s, draw.Faint)
			}
			return draw.Text(draw.Shown(s))
		}}
		if c.Name == "STATE" {
			as.cell = stateCell
		}
		if c.Sorts() {
			as.compare = func(a, b *tabRow) int { return c.Compare(a.gpu, b.gpu) }
		}
		list = append(list, as)
	}
	return append(list, column{right("AGE", 5, 10), ageCell, nil})
}

func stateCell(r *tabRow) draw.Cell {
	mark := r.scene.mark(r.host, r.gpu.GPU)
	return draw.Styled(mark.Text+" "+string(r.gpu.State), mark.Style)
}

func processColumns() []column {
	return []column{
		hostColumn(),
		counted(right("PID", 7, 0), func(r *tabRow) int { return int(r.id.pid) }),
		worded(flexible("USER", 8, 0), func(r *tabRow) string { return cmp.Or(string(r.process.User), "?") }),
		{left("GPU", 3, 0), words(indices), nil},
		memoryColumn(8, func(r *tabRow) *int64 { return r.process.memory }),
		{left("STATE", 5, 7), processStateCell, nil},
		worded(flexible("COMMAND", 8, 9), func(r *tabRow) string { return r.process.ShownCommand() }),
		{flexible("CONTAINER", 12, 5), words(func(r *tabRow) string {
			return cmp.Or(r.process.ContainerName, r.process.Container)
		}), nil},
		{right("AGE", 5, 6), ageCell, nil},
	}
}

func indices(r *tabRow) string {
	list := make([]snapshot.DeviceIndex, len(r.process.gpus))
	for i, g := range r.process.gpus {
		list[i] = g.Index
	}
	return text.JoinIndices(list)
}

func memoryColumn(order int, bytes func(*tabRow) *int64) column {
	return column{right("MEM", 8, order), words(func(r *tabRow) string {
		if bytes(r) == nil {
			return "?"
		}
		return text.GiB(*bytes(r))
	}), known(bytes)}
}

func processStateCell(r *tabRow) draw.Cell {
	if len(rulesOf(r)) > 0 {
		return draw.Styled("! finding", draw.Red)
	}
	if slices.ContainsFunc(r.process.gpus, func(g *gpus.GPU) bool { return g.State != gpus.Idle }) {
		return draw.Styled("A busy", draw.Cyan)
	}
	return draw.Styled("a idle", draw.Yellow)
}

func userColumns() []column {
	return []column{
		worded(flexible("USER", 10, 0), func(r *tabRow) string { return string(r.user.Name) }),
		counted(right("GPUS", 7, 0), func(r *tabRow) int { return r.user.Attached }),
		counted(right("IDLE", 4, 0), func(r *tabRow) int { return r.user.Idle }),
		counted(right("USED", 4, 8), func(r *tabRow) int { return r.user.Used }),
		{right("CAP", 7, 9), capCell, nil},
		memoryColumn(7, func(r *tabRow) *int64 { return &r.user.Memory }),
		counted(right("HOSTS", 5, 6), func(r *tabRow) int { return r.user.Hosts }),
		counted(right("FINDINGS", 8, 5), func(r *tabRow) int { return r.user.Findings }),
	}
}

func capCell(r *tabRow) draw.Cell {
	if r.user.Cap == nil {
		return draw.Styled("-", draw.Faint)
	}
	c := fmt.Sprintf("%d/%d", r.user.Attached, *r.user.Cap)
	switch {
	case r.user.Attached > *r.user.Cap:
		return draw.Styled("!"+c, draw.Red)
	case r.user.Attached == *r.user.Cap:
		return draw.Styled(c, draw.Yellow)
	}
	return draw.Text(c)
}

func findingColumns() []column {
	return []column{
		{left("DUE", 8, 0), dueCell, by(func(r *tabRow) int64 { return r.finding.Due.UnixNano() })},
		worded(flexible("USER", 8, 0), func(r *tabRow) string { return string(r.finding.User) }),
		hostColumn(),
		worded(flexible("RULE", 8, 8), func(r *tabRow) string { return string(r.finding.Rule) }),
		{right("SINCE", 5, 9), func(r *tabRow) draw.Cell {
			return draw.Text(short(r.now().Sub(r.finding.Since)))
		}, by(func(r *tabRow) int64 { return -r.finding.Since.UnixNano() })},
		{flexible("WHY", 12, 7), words(why), nil},
	}
}

func dueCell(r *tabRow) draw.Cell {
	f := r.finding
	switch f.Decision {
	case enforce.DecisionAct:
		return draw.Styled("now", draw.Red)
	case enforce.DecisionWait:
		if left := f.Due.Sub(r.now()); left > 0 && f.BlockedBy == "" {
			return draw.Styled("in "+short(left), draw.Yellow)
		}
		return draw.Styled("waits", draw.Yellow)
	case enforce.DecisionHold:
		return draw.Styled("held", draw.Magenta)
	case enforce.DecisionStuck:
		return draw.Styled("stuck", draw.Red)
	}
	return draw.Text(string(f.Decision))
}

func why(r *tabRow) string {
	if r.finding.BlockedBy == "" {
		return r.finding.Line
	}
	return r.finding.Line + " (waits: " + r.finding.BlockedBy + ")"
}

func historyColumns() []column {
	return []column{
		{left("TIME", 8, 0), timeCell, nil},
		worded(left("EVENT", 8, 0), func(r *tabRow) string { return string(r.event.Kind) }),
		hostColumn(),
		worded(flexible("USER", 8, 9), func(r *tabRow) string { return string(r.event.User) }),
		{left("DECISION", 8, 8), words(func(r *tabRow) string {
			return cmp.Or(string(r.event.Status), string(r.event.Decision))
		}), nil},
		{flexible("WHAT", 12, 7), words(func(r *tabRow) string { return r.event.Text }), nil},
	}
}

func timeCell(r *tabRow) draw.Cell {
	now := r.now()
	at := r.event.Time.In(now.Location())
	if at.YearDay() != now.YearDay() || at.Year() != now.Year() {
		return draw.Text(at.Format("01-02 15:04"))
	}
	return draw.Text(at.Format(time.TimeOnly))
}

func failedColumns() []column {
	return []column{
		hostColumn(),
		{right("AGE", 6, 0), ageCell, by(age)},
		{flexible("CAUSE", 10, 8), func(r *tabRow) draw.Cell {
			return draw.Styled(draw.Shown(r.failure.Error), draw.Red)
		}, by(func(r *tabRow) string { return string(r.failure.Class) })},
		{flexible("NEXT STEP", 10, 9), words(func(r *tabRow) string { return r.failure.NextStep }), nil},
	}
}
