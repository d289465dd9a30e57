package proc

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// SinceBoot is the time since this machine was started, suspend included (CLOCK_BOOTTIME): what
// start times of processes count in.
func SinceBoot() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, fmt.Errorf("read the time since boot: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// userHZ is USER_HZ, the unit of start times: 100 per second on all platforms that Go
// supports.
const userHZ = 100

// Tick is the unit of start times.
const Tick = time.Second / userHZ

// StartTimeNow is the start time of a process that starts now; 0 if it is unknown.
func StartTimeNow() snapshot.StartTime {
	since, err := SinceBoot()
	if err != nil {
		return 0
	}
	return snapshot.StartTime(since / Tick)
}
