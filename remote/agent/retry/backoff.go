package retry

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed-3119e985/genv/remote"
)

// All hosts that answer, but fail the login or genv,
// together get one attempt per loginBudget.
const (
	firstPause  = 250 * time.Millisecond // after the first failure; doubled after each
	probePeriod = 3400 * time.Millisecond
	loginPause  = 3 * time.Second
	loginBudget = 100 * time.Millisecond

	// ProbeTimeout is how long a host has to accept a connection and to begin its
	// banner. The SYN that the kernel sends again after 1 s is within it.
	ProbeTimeout = 1500 * time.Millisecond

	// A key that was accepted before may be refused while a host boots
	// (pam_nologin(8)). This many attempts are too few for sshd to lock this
	// machine out (sshd_config(5), PerSourcePenalties).
	authRetries = 5

	// silentProbes is how many probes in a row may find a host that accepts
	// connections but does not begin its banner, before a login is tried with the
	// longer deadline that it has.
	silentProbes = 4
)

// pauses are for failures that need an administrator: the pause after the first
// one, doubled up to the last. sshd locks out an address at which logins keep
// failing, and with it all other users of this machine, so refused logins wait
// for minutes.
var pauses = map[remote.Class]struct{ first, last time.Duration }{
	remote.HostKey:        {10 * time.Second, 2 * time.Minute},
	remote.HostKeyChanged: {time.Minute, 10 * time.Minute},
	remote.Auth:           {2 * time.Minute, 16 * time.Minute},
	remote.OpenSSH:        {2 * time.Minute, 16 * time.Minute},
	remote.Sudo:           {loginPause, 30 * time.Second},
	remote.SudoRefused:    {loginPause, 30 * time.Second},
	remote.Version:        {loginPause, 30 * time.Second},
	remote.Configuration:  {loginPause, 30 * time.Second},
}

// Backoff counts the failures of one host. The zero value is a host that was
// never tried.
type Backoff struct {
	reached  bool // it was connected before, in this run
	class    remote.Class
	failures int // in a row, of the class
	silent   int // probes in a row that were accepted, but not answered
}

// Connected notes a success.
func (b *Backoff) Connected() { *b = Backoff{reached: true} }

// AfterProbe notes a failed probe that took so long, and returns how long to wait
// before the next one. A login is due instead if the host keeps accepting
// connections.
func (b *Backoff) AfterProbe(err error, took time.Duration) (pause time.Duration, login bool) {
	b.count(remote.Unreachable)
	if remote.ClassOf(err) != remote.Timeout {
		b.silent = 0
	} else if b.silent++; b.silent == silentProbes {
		b.silent = 0
		return 0, true
	}
	period := min(firstPause<<min(b.failures-1, 8), probePeriod)
	spread := min(period, probePeriod/7)               // so that probes don't begin at the same time
	return max(0, period-rand.N(spread+1)-took), false //nolint:gosec // spreads load, guards no secret
}

// AfterLogin notes a failed login, and returns how long to wait before the next
// one; failing is how many hosts there are with failed logins.
func (b *Backoff) AfterLogin(err error, failing int) time.Duration {
	class := remote.ClassOf(err)
	b.count(class)
	pause, known := pauses[class]
	if !known || (class == remote.Auth || class == remote.OpenSSH) && b.reached && b.failures <= authRetries {
		wait := min(firstPause<<min(b.failures-1, 8), loginPause)
		if known {
			wait = loginPause
		}
		return jitter(max(wait, time.Duration(failing)*loginBudget))
	}
	return jitter(min(pause.first<<min(b.failures-1, 10), pause.last))
}

func (b *Backoff) count(class remote.Class) {
	if class != b.class {
		b.class, b.failures = class, 0
	}
	b.failures++
}

// Probed reports whether a failed attempt is followed by probes, which find out
// whether the host answers at all.
func Probed(err error) bool {
	if errors.Is(err, remote.ErrBusy) {
		return false
	}
	switch remote.ClassOf(err) {
	case remote.Unreachable, remote.Timeout, remote.OutcomeUnknown:
		return true
	}
	return false
}

// busyTries bounds how often a host is tried that drops connections while too many
// logins are under way (MaxStartups).
const busyTries = 6

// UntilNotBusy repeats what an sshd refused at random (remote.ErrBusy). Nothing was begun
// then.
func UntilNotBusy[T any](ctx context.Context, do func() (T, error)) (T, error) {
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

// tick is the time between the moments at which attempts begin in the background.
const tick = 100 * time.Millisecond

// Together shortens a pause so that it ends at such a moment. Waking up the process
// costs more than a probe does: a thousand hosts that are down cost half as much when
// they are probed 30 at a time.
func Together(pause time.Duration) time.Duration {
	now := time.Now()
	return max(0, now.Add(pause).Truncate(tick).Sub(now.Round(0)))
}

// jitter spreads what would happen at the same time over 75 to 125 % of d.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1) //nolint:gosec // spreads load, guards no secret
}
