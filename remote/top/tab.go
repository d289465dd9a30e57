package top

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text/draw"
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

// column is a column of a tab.
type column struct {
	draw.Column
	cell    func(*scene, *row, time.Time) draw.Cell
	compare func(*scene, *row, *row) int // nil if it can't be sorted by
}

// flexible is a column that is at least so wide, and that may be cut to that.
func flexible(name string, least, order int) draw.Column {
	return draw.Column{Name: name, Width: least, Least: least, Order: order}
}

func left(name string, width, order int) draw.Column {
	return draw.Column{Name: name, Width: width, Order: order}
}

func right(name string, width, order int) draw.Column {
	return draw.Column{Name: name, Width: width, Order: order, Right: true}
}

// worded is a column of a text, which the rows can be sorted by.
func worded(as draw.Column, value func(*row) string) column {
	return column{as, words(value), by(value)}
}

// counted is a column of a number.
func counted(as draw.Column, value func(*row) int) column {
	return column{as, words(func(r *row) string { return strconv.Itoa(value(r)) }), by(value)}
}

// measured is a column of a number with a unit, which may be unknown.
func measured[N int | float64](as draw.Column, unit string, value func(*row) *N) column {
	return column{as, func(_ *scene, r *row, _ time.Time) draw.Cell { return amount(value(r), unit) }, known(value)}
}

func amount[N int | float64](n *N, unit string) draw.Cell {
	if n == nil {
		return draw.Styled("?", draw.Faint)
	}
	return draw.Text(fmt.Sprintf("%.0f%s", float64(*n), unit))
}

// words shows a foreign text.
func words(value func(*row) string) func(*scene, *row, time.Time) draw.Cell {
	return func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(draw.Shown(value(r))) }
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
func by[T cmp.Ordered](value func(*row) T) func(*scene, *row, *row) int {
	return func(_ *scene, a, b *row) int { return cmp.Compare(value(a), value(b)) }
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

func hostColumn() column {
	return worded(flexible("HOST", 10, 0), func(r *row) string { return string(r.id.host) })
}
