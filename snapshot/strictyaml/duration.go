package strictyaml

import (
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Duration is a time from low to high, as text.ParseDuration reads it: 10s, 15m,
// 1h30m or 7d, or seconds without a unit.
func (n *Node) Duration(low, high time.Duration) time.Duration {
	if n.kind != number && !n.want(word, "10s") {
		return 0
	}
	d, err := text.ParseDuration(n.text)
	if err != nil {
		n.Failf("%s%v", n.label(), err)
		return 0
	}
	if d < low || d > high {
		n.Failf("%s%s is not from %s to %s", n.label(), n.text, text.FormatDuration(low), text.FormatDuration(high))
		return 0
	}
	return d
}
