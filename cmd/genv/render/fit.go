package render

import (
	"math"
	"slices"
)

// Gap is the number of spaces between two columns on a terminal.
const Gap = 2

// Fit is how a column may be fitted into a terminal.
type Fit struct {
	Width int // that shows everything
	Least int // to which it may be cut; 0 if it isn't cut
	Order int // when it is left out if the terminal is too narrow, 1 first; 0 for never
}

// LeftOut is the width of a column that is left out.
const LeftOut = -1

// FitWidths leaves columns out and cuts others until a line has at most width characters,
// if that is possible. It returns the width of each column, or LeftOut.
func FitWidths(columns []Fit, width int) []int {
	widths := make([]int, len(columns))
	for i := range columns {
		widths[i] = columns[i].minimum()
	}
	for lineLength(widths) > width {
		out := leftOutFirst(columns, widths)
		if out < 0 {
			break
		}
		widths[out] = LeftOut
	}
	spare := max(width-lineLength(widths), 0)
	var cut []int
	for i, c := range columns {
		if widths[i] != LeftOut && widths[i] < c.Width {
			cut = append(cut, i)
		}
	}
	needs := func(i int) int { return columns[i].Width - columns[i].minimum() }
	slices.SortStableFunc(cut, func(a, b int) int { return needs(a) - needs(b) })
	for n, i := range cut { // each gets the same, or as much as it needs
		more := min(needs(i), spare/(len(cut)-n))
		widths[i] += more
		spare -= more
	}
	return widths
}

func (c Fit) minimum() int {
	if c.Least == 0 {
		return c.Width
	}
	return min(c.Least, c.Width)
}

func lineLength(widths []int) int {
	n := -Gap
	for _, w := range widths {
		if w != LeftOut {
			n += w + Gap
		}
	}
	return n
}

// leftOutFirst is the column to leave out next; -1 if there is none.
func leftOutFirst(columns []Fit, widths []int) int {
	at, first := -1, math.MaxInt
	for i, c := range columns {
		if c.Order > 0 && c.Order < first && widths[i] != LeftOut {
			at, first = i, c.Order
		}
	}
	return at
}

// Distinct is how many characters of names it takes to tell them apart.
func Distinct(names []string) (most int) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	for i := 1; i < len(names); i++ {
		before, same := []rune(names[i-1]), 0
		for at, r := range []rune(names[i]) {
			if at >= len(before) || before[at] != r {
				break
			}
			same++
		}
		most = max(most, same+1)
	}
	return most
}
