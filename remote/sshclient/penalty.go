package sshclient

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed-3119e985/genv/remote"
)

// penalty is how long a failed endpoint is left alone.
type penalty struct {
	err      error
	class    remote.Class
	failures int
	until    time.Time // monotonic
}

// pauses are by the cause: the first after one failure, doubled up to the last.
// A refused login waits for minutes, since sshd locks out an address that keeps
// failing (sshd_config(5), PerSourcePenalties), and with it the jump host's
// other users.
var pauses = map[remote.Class]struct{ first, last time.Duration }{
	remote.Unreachable:    {500 * time.Millisecond, time.Minute},
	remote.Timeout:        {500 * time.Millisecond, time.Minute},
	remote.HostKey:        {10 * time.Second, 2 * time.Minute},
	remote.HostKeyChanged: {time.Minute, 10 * time.Minute},
	remote.Auth:           {2 * time.Minute, 16 * time.Minute},
}

// standing is the error to answer with while the pause lasts; nil after it.
func (p *penalty) standing() error {
	wait := time.Until(p.until)
	if p.err == nil || wait <= 0 {
		return nil
	}
	var key *keyRefusal
	if errors.As(p.err, &key) && key.outdated() {
		return nil // the administrator has just seen to it
	}
	var e *remote.Error
	if !errors.As(p.err, &e) {
		return p.err
	}
	return &remote.Error{Class: e.Class, Err: fmt.Errorf("%w (tried again in %s)", e.Err, wait.Round(time.Second/10))}
}

func (p *penalty) record(err error) {
	class := remote.ClassOf(err)
	pause, counted := pauses[class]
	if err == nil || !counted {
		*p = penalty{}
		return
	}
	if class != p.class {
		p.failures = 0
	}
	wait := min(pause.first<<min(p.failures, 10), pause.last)
	*p = penalty{err: err, class: class, failures: p.failures + 1, until: time.Now().Add(jitter(wait))}
}

// jitter spreads what would come at once over 75 to 125 per cent of d.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1) //nolint:gosec // spreads load, guards no secret
}
