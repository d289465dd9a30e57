package election

import (
	"time"

	"github.com/seed-3119e985/genv/snapshot/proc"
)

// SinceBoot is the Clock of Options: it can't be set and, unlike that of time.Since, goes on while
// the machine sleeps.
func SinceBoot() time.Duration {
	up, err := proc.SinceBoot()
	if err != nil {
		panic(err) // Linux has had this clock since 2.6.39
	}
	return up
}
