package controller

import "sync/atomic"

// counter tells a progress function how many of total are done, from none on.
type counter struct {
	done  atomic.Int64
	total int
	tell  func(done, total int)
}

func newCounter(total int, tell func(done, total int)) *counter {
	if tell == nil {
		tell = func(int, int) {}
	}
	tell(0, total)
	return &counter{total: total, tell: tell}
}

func (c *counter) add() { c.tell(int(c.done.Add(1)), c.total) }
