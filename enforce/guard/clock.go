package guard

import (
	"time"

	"github.com/seed-3119e985/genv/enforce/guard/order"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Now is what the clocks of this machine show.
func Now() (order.At, error) {
	since, err := proc.SinceBoot()
	if err != nil {
		return order.At{}, err
	}
	boot, err := proc.FS{}.BootID()
	if err != nil {
		return order.At{}, err
	}
	return order.At{Time: time.Now(), BootID: boot, SinceBoot: since}, nil
}
