package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// sudoAgain is how long genv waits before it tries sudo again on a host that refused it:
// hosts log each refusal, and may send mail about it.
const sudoAgain = time.Hour

// visibleLink asks hosts on which sudo refuses genv for what every login sees. It is for
// commands that only show what is there.
type visibleLink struct {
	*agent.Pool
	commands agent.Commands
	now      func() time.Time

	mu      sync.Mutex
	without map[string]withoutSudo // by the name of the host
}

// visible asks hosts for what is there, at an interval, and has the devices measured for
// each answer. The pool must not have been used yet.
func (f *fleet) visible(pool *agent.Pool, interval time.Duration) *visibleLink {
	pool.Measure, pool.DeviceAge = true, func() time.Duration { return interval / 2 }
	return &visibleLink{Pool: pool, commands: f.commands(), now: f.program.Now, without: make(map[string]withoutSudo)}
}

// withoutSudo is a host on which sudo refuses genv, and how it is asked instead.
type withoutSudo struct {
	since time.Time
	via   agent.Via
}

// Snapshot implements controller.Link.
func (l *visibleLink) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	asked, refused := l.refused(host)
	if !refused {
		s, err := l.Pool.Snapshot(ctx, host)
		if class := remote.ClassOf(err); err == nil || class != remote.Sudo && class != remote.SudoRefused {
			return s, err
		}
		asked.since = l.now()
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	s, via, err := l.commands.Visible(ctx, host)
	asked.via = via
	l.mu.Lock()
	defer l.mu.Unlock()
	l.without[host.Name] = asked
	return s, err
}

// About implements controller.Link.
func (l *visibleLink) About(host remote.Host) agent.About {
	about := l.Pool.About(host)
	if asked, refused := l.refused(host); refused {
		about.Via = asked.via
	}
	return about
}

// refused reports whether sudo refused genv on a host within sudoAgain.
func (l *visibleLink) refused(host remote.Host) (withoutSudo, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	asked, known := l.without[host.Name]
	return asked, known && l.now().Sub(asked.since) < sudoAgain
}
