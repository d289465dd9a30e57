package draw

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFit(t *testing.T) {
	for _, row := range []struct {
		columns []ColumnLayout
		screen  int
		want    []int
	}{
		{nil, 80, []int{}},
		{[]ColumnLayout{{Width: 10}, {Width: 20}}, 80, []int{10, 20}},
		{[]ColumnLayout{{Width: 10}, {Width: 20}}, 8, []int{10, 20}},
		{[]ColumnLayout{{Width: 10}, {Width: 20, Least: 5}}, 22, []int{10, 10}},
		{[]ColumnLayout{{Width: 10}, {Width: 20, Least: 5}}, 0, []int{10, 20}},
		{[]ColumnLayout{{Width: 30, Least: 5}, {Width: 20, Least: 5}}, 32, []int{15, 15}},
		{[]ColumnLayout{{Width: 30, Least: 5}, {Width: 7, Least: 5}}, 32, []int{23, 7}},
		{[]ColumnLayout{{Width: 10}, {Width: 20, Order: 2}, {Width: 5, Order: 1}}, 32, []int{10, 20, leftOut}},
		{[]ColumnLayout{{Width: 10}, {Width: 20, Order: 2}, {Width: 5, Order: 1}}, 31, []int{10, leftOut, leftOut}},
	} {
		table := Table{Columns: row.columns}
		table.Fit(row.screen)
		require.Equal(t, row.want, table.widths)
	}
}

// TestFitProperty: a line fits if it can, and nothing is cut that has room.
func TestFitProperty(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		table := Table{Columns: make([]ColumnLayout, 1+random.IntN(8))}
		least, fixed, cut := make([]int, len(table.Columns)), -Gap, false
		for i := range table.Columns {
			c := ColumnLayout{Width: 1 + random.IntN(30), Least: random.IntN(12), Order: random.IntN(4)}
			if least[i] = c.Width; c.Least > 0 {
				least[i] = min(c.Least, c.Width)
			}
			if c.Order == 0 {
				fixed += least[i] + Gap
			}
			table.Columns[i] = c
		}
		screen := 1 + random.IntN(140)
		length := table.Fit(screen)
		for i, w := range table.widths {
			if w != leftOut {
				require.GreaterOrEqual(t, w, least[i])
				require.LessOrEqual(t, w, table.Columns[i].Width)
				cut = cut || w < table.Columns[i].Width
			}
		}
		if fixed <= screen {
			require.LessOrEqual(t, length, screen)
		}
		if cut && fixed <= screen {
			require.Equal(t, screen, length, "%v %v", table.Columns, table.widths)
		}
	}
}
