package remote

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	firstPause  = 250 * time.Millisecond // after the first failure; doubled after each
	probePeriod = 3400 * time.Millisecond
	loginPause  = 3 * time.Second
	loginBudget = 100 * time.Millisecond // in which all hosts that fail the login or genv together get one attempt

	// ProbeTimeout is how long a host has to accept a connection and to begin its banner. The SYN that the kernel sends
	// again after 1 s is within it.
	ProbeTimeout = 1500 * time.Millisecond

	// authRetries is how often a key that was accepted before is tried again after loginPause, since a booting host
	// refuses it (pam_nologin(8)). sshd doesn't lock this machine out for so few (sshd_config(5), PerSourcePenalties).
	authRetries = 5

	silentProbes = 4 // in a row that are accepted without a banner, before a login with its longer deadline
)

// pauses are for failures that need an administrator: the pause after the first one, doubled up to the last. Refused
// logins wait for minutes, since sshd locks out an address at which logins keep failing.
var pauses = map[Class]struct{ first, last time.Duration }{
	HostKey:        {10 * time.Second, 2 * time.Minute},
	HostKeyChanged: {time.Minute, 10 * time.Minute},
	Auth:           {2 * time.Minute, 16 * time.Minute},
	OpenSSH:        {2 * time.Minute, 16 * time.Minute},
	Sudo:           {loginPause, 30 * time.Second},
	SudoRefused:    {loginPause, 30 * time.Second},
	Version:        {loginPause, 30 * time.Second},
	Configuration:  {loginPause, 30 * time.Second},
}

// RetryFor is for how long a host is tried in the background after it was asked for.
const RetryFor = time.Minute

// Backoff is how package agent tries a host again that fails. The zero value is a host that was never tried.
//
//		pause, login := backoff.AfterProbe(err, took)
//		pause := backoff.AfterLogin(err, failing)
//		timer := time.AfterFunc(remote.Together(pause), try)
//
//	  - A host that does not answer is probed: one TCP connect, and the wait for the first byte of sshd's banner, for
//	    1.5 s. The first pause is 250 ms; they double until probes begin every 2.8 to 3.4 s, at random. So a host is
//	    enforced within 5 s of being reachable, at an interval of 1 s.
//	  - A host that answers is logged in to, and asked for a snapshot. If that fails, it is tried about every 3 s; all
//	    such hosts together get 10 logins a second, and a quarter of Fanout.
//	  - Failures that need an administrator are tried less often: see pauses. A key that was accepted before gets five
//	    tries 3 s apart. A changed known_hosts ends the pause. A login that is refused with a reason (pam_nologin(8),
//	    an expired account) is tried again after 3 to 30 s.
//	  - Hosts behind a jump host or a ProxyCommand can't be probed; each try is a login, by the second rule.
type Backoff struct {
	reached  bool // it was connected before, in this run
	class    Class
	failures int // in a row, of the class
	silent   int // probes in a row that were accepted, but not answered
}

// Connected notes a success.
func (b *Backoff) Connected() { *b = Backoff{reached: true} }

// AfterProbe notes a failed probe, and returns the pause before the next, or that a login is due, since the host keeps
// accepting connections.
func (b *Backoff) AfterProbe(err error, took time.Duration) (pause time.Duration, login bool) {
	b.count(Unreachable)
	if ClassOf(err) != Timeout {
		b.silent = 0
	} else if b.silent++; b.silent == silentProbes {
		b.silent = 0
		return 0, true
	}
	period := min(firstPause<<min(b.failures-1, 8), probePeriod)
	spread := min(period, probePeriod/7)               // so that probes don't begin at the same time
	return max(0, period-rand.N(spread+1)-took), false //nolint:gosec // spreads load, guards no secret
}

// AfterLogin notes a failed login, and returns the pause before the next one; failing is how many hosts fail logins.
func (b *Backoff) AfterLogin(err error, failing int) time.Duration {
	class := ClassOf(err)
	b.count(class)
	pause, known := pauses[class]
	if errors.Is(err, ErrSaidWhy) {
		pause = pauses[Sudo]
	}
	if !known || (class == Auth || class == OpenSSH) && b.reached && b.failures <= authRetries {
		wait := min(firstPause<<min(b.failures-1, 8), loginPause)
		if known {
			wait = loginPause
		}
		return jitter(max(wait, time.Duration(failing)*loginBudget))
	}
	return jitter(min(pause.first<<min(b.failures-1, 10), pause.last))
}

func (b *Backoff) count(class Class) {
	if class != b.class {
		b.class, b.failures = class, 0
	}
	b.failures++
}

// Probed reports whether a failed attempt is followed by probes, which find out whether the host answers at all.
func Probed(err error) bool {
	return !errors.Is(err, ErrBusy) && slices.Contains([]Class{Unreachable, Timeout, OutcomeUnknown}, ClassOf(err))
}

const busyTries = 6 // of a host that returns ErrBusy

// UntilNotBusy repeats what an sshd refused at random (ErrBusy). Nothing was begun then.
func UntilNotBusy[T any](ctx context.Context, do func() (T, error)) (T, error) {
	return repeat(ctx, do, func(pauses int, err error) (time.Duration, bool) {
		return 100 * time.Millisecond << pauses, pauses < busyTries-1 && errors.Is(err, ErrBusy)
	})
}

// UntilAdmitted repeats until ctx ends what a host refuses for now, such as one session more than MaxSessions.
func UntilAdmitted[T any](ctx context.Context, do func() (T, error), refused func(error) bool) (T, error) {
	return repeat(ctx, do, func(pauses int, err error) (time.Duration, bool) {
		return min(50*time.Millisecond<<min(pauses, 5), time.Second), refused(err)
	})
}

// repeat does something until next, which gets the number of pauses so far, says that it isn't tried again.
func repeat[T any](ctx context.Context, do func() (T, error),
	next func(pauses int, err error) (time.Duration, bool),
) (T, error) {
	for pauses := 0; ; pauses++ {
		value, err := do()
		pause, again := next(pauses, err)
		if !again {
			return value, err
		}
		if !Sleep(ctx, jitter(pause)) {
			return value, err
		}
	}
}

const tick = 100 * time.Millisecond // between the times at which attempts begin in the background

// Together shortens a pause to such a time: it costs half as much to probe a thousand hosts that are down 30 at a time.
func Together(pause time.Duration) time.Duration {
	now := time.Now()
	return max(0, now.Add(pause).Truncate(tick).Sub(now.Round(0)))
}

// jitter spreads what would happen at the same time over 75 to 125 % of d.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1) //nolint:gosec // spreads load, guards no secret
}
