package guard

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard/order"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Now is what the clocks of this machine show.
func Now() (order.At, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return order.At{}, fmt.Errorf("read the time since boot: %w", err)
	}
	boot, err := proc.FS{}.BootID()
	if err != nil {
		return order.At{}, err
	}
	return order.At{Time: time.Now(), BootID: boot, SinceBoot: time.Duration(t.Nano())}, nil
}
