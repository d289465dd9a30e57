package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed-3119e985/genv/remote"
)

// busyTries bounds how often a host is tried that drops connections while too many
// logins are under way (MaxStartups).
const busyTries = 6

// untilNotBusy repeats what an sshd refused at random. Nothing was begun then.
func untilNotBusy[T any](ctx context.Context, do func() (T, error)) (T, error) {
	pause := 100 * time.Millisecond
	for try := 1; ; try++ {
		value, err := do()
		if try == busyTries || !errors.Is(err, remote.ErrBusy) {
			return value, err
		}
		select {
		case <-time.After(jitter(pause)):
			pause *= 2
		case <-ctx.Done():
			return value, err
		}
	}
}

// jitter spreads what would happen at the same time over 75 to 125 % of d.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1) //nolint:gosec // spreads load, guards no secret
}
