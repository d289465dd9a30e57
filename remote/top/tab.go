package top

import (
	"cmp"
	"time"

	"github.com/seed-3119e985/genv/remote/top/draw"
)

// tabID is a tab, in the order of the screen.
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

// tabNames are what the tabs are called.
var tabNames = [tabCount]string{"hosts", "GPUs", "users", "findings", "processes", "history", "failed"}

// column is a column of a tab, laid out as draw.Column says.
type column struct {
	name     string
	least    int
	flexible bool
	drop     int
	right    bool
	cell     func(*scene, *row, time.Time) draw.Cell
	compare  func(*scene, *row, *row) int // nil if it can't be sorted by
}

func (c *column) layout() draw.Column {
	return draw.Column{Name: c.name, Least: c.least, Flexible: c.flexible, Drop: c.drop, Right: c.right}
}

// columns are the columns of a tab. s may be nil.
func (s *scene) columns(tab tabID) []column {
	switch tab {
	case tabGPUs:
		return gpuColumns()
	case tabUsers:
		return userColumns()
	case tabFindings:
		return findingColumns()
	case tabProcesses:
		return processColumns()
	case tabHistory:
		return historyColumns()
	case tabFailed:
		return failedColumns()
	}
	return append(hostColumns(), s.guardColumns()...)
}

// by compares rows by a value of theirs.
func by[T cmp.Ordered](value func(*scene, *row) T) func(*scene, *row, *row) int {
	return func(s *scene, a, b *row) int { return cmp.Compare(value(s, a), value(s, b)) }
}

// known compares rows by a value that may be unknown. Rows without it are the smallest.
func known[T cmp.Ordered](value func(*row) *T) func(*scene, *row, *row) int {
	return func(_ *scene, a, b *row) int {
		x, y := value(a), value(b)
		switch {
		case x == nil && y == nil:
			return 0
		case x == nil:
			return -1
		case y == nil:
			return 1
		}
		return cmp.Compare(*x, *y)
	}
}

func hostName(_ *scene, r *row) string { return string(r.id.host) }

func hostColumn() column {
	return column{
		name: "HOST", least: 10, flexible: true, compare: by(hostName),
		cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(draw.Shown(string(r.id.host))) },
	}
}
