package guard

import (
	"time"

	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Now is what the clocks of this machine show.
func Now() (At, error) {
	since, err := proc.SinceBoot()
	if err != nil {
		return At{}, err
	}
	boot, err := proc.FS{}.BootID()
	if err != nil {
		return At{}, err
	}
	return At{Time: time.Now(), BootID: boot, SinceBoot: since}, nil
}
