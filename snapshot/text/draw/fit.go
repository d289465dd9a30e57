package draw

import "slices"

// Gap is the number of spaces between two columns.
const Gap = 2

// leftOut is the width of a column that is left out.
const leftOut = -1

// Fit leaves columns out and cuts others until a line has at most screen characters, if that
// is possible; 0 is any number. It returns how many the longest line has.
func (t *Table) Fit(screen int) int {
	t.widths = make([]int, len(t.Columns))
	head, length := t.Head(), t.length()
	for j, c := range t.Columns {
		t.widths[j] = max(c.Width, head[j].width(length))
		for i := range t.Rows {
			t.widths[j] = max(t.widths[j], t.Rows[i].Cells[j].width(length))
		}
	}
	if screen > 0 {
		squeeze(t.Columns, t.widths, screen)
	}
	return lineLength(t.widths)
}

func (t *Table) length() func(string) int {
	if t.Length == nil {
		return Width
	}
	return t.Length
}

// squeeze fits columns of these widths into a screen: it leaves out those for which there is no room,
// and cuts the widest of the others.
func squeeze(columns []Column, widths []int, screen int) {
	least := slices.Clone(widths)
	for i, c := range columns {
		if c.Least > 0 {
			least[i] = min(c.Least, widths[i])
		}
	}
	for lineLength(least) > screen {
		out := -1
		for i, c := range columns {
			if c.Order > 0 && widths[i] != leftOut && (out < 0 || c.Order < columns[out].Order) {
				out = i
			}
		}
		if out < 0 {
			break
		}
		widths[out], least[out] = leftOut, leftOut
	}
	for lineLength(widths) > screen {
		widest := -1
		for i, w := range widths {
			if w > least[i] && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
}

func lineLength(widths []int) int {
	n := -Gap
	for _, w := range widths {
		if w != leftOut {
			n += w + Gap
		}
	}
	return n
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
