package report

import (
	"fmt"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// balance is a chart with a line for each user: how far the attached time is over or under an
// equal share.
type balance struct {
	Height float64
	Marks  []balanceMark
	Lines  []balanceLine
	More   int // lines without room
}

type balanceMark struct {
	X            float64
	Label, Class string
}

type balanceLine struct {
	Key, Value, Label, Class string
	X, Y, Width              float64
}

// mostShares is the end of the scale in equal shares: a bar beyond it ends there, and its figure
// is written next to it.
const mostShares = 5

// The sizes of the scale: the figures are to its right.
const (
	maxBalanceKey = 26  // characters
	balanceLeft   = 190 // pixels
	balanceWidth  = 510
)

func balanceOf(d *Document) *balance {
	end := 2.0
	for i := range d.Rows {
		if of := d.Rows[i].OfEqual; of != nil {
			end = min(max(end, *of), mostShares)
		}
	}
	at := func(shares float64) float64 { return balanceLeft + min(shares, end)/end*balanceWidth }
	b := &balance{Marks: []balanceMark{{at(0), "0", "axis"}}}
	for shares := 2.0; shares <= end; shares++ {
		b.Marks = append(b.Marks, balanceMark{at(shares), fmt.Sprintf("%.0f ×", shares), "axis"})
	}
	b.Marks = append(b.Marks, balanceMark{at(1), "equal: " + Hours(d.FairShare.Equal) + " h", "equal"})
	for i := range d.Rows {
		r := &d.Rows[i]
		if r.OfEqual == nil {
			continue
		}
		if len(b.Lines) == maxLines {
			b.More++
			continue
		}
		line := balanceLine{
			Key: text.Shorten(text.OneLine(Title(r.Key)), maxBalanceKey), Y: balanceTop + float64(len(b.Lines))*lineHeight, Class: "over",
			Value: Percent(*r.OfEqual) + ", " + Signed(*r.OverEqual) + " h", X: at(1), Width: at(*r.OfEqual) - at(1),
			Label: fmt.Sprintf("%s h, %s of an equal share", Hours(r.Attached), Percent(*r.OfEqual)),
		}
		if line.Width < 0 {
			line.Class, line.X, line.Width = "under", at(*r.OfEqual), -line.Width
		}
		b.Lines = append(b.Lines, line)
	}
	b.Height = balanceTop + float64(len(b.Lines))*lineHeight
	return b
}

// balanceTop is where the first line begins, under the marks.
const balanceTop = 24
