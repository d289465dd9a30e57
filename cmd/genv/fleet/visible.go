package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// recent is what was found at hosts, by name, for a while. It is safe for concurrent use.
type recent[V any] struct {
	now   func() time.Time
	lasts time.Duration

	mu    sync.Mutex
	value map[string]V
	since map[string]time.Time
}

// of is what was found at a host; ok is false if nothing was, or that is over.
func (r *recent[V]) of(host remote.Host) (value V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, found := r.since[host.Name]
	return r.value[host.Name], found && r.now().Sub(at) < r.lasts
}

// note keeps what was found at a host; isNew has the time begin again.
func (r *recent[V]) note(host remote.Host, value V, isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.value == nil {
		r.value, r.since = make(map[string]V), make(map[string]time.Time)
	}
	if r.value[host.Name] = value; isNew {
		r.since[host.Name] = r.now()
	}
}

// sudoAgain is how long genv waits before it tries sudo again on a host that refused it:
// hosts log each refusal, and may send mail about it.
const sudoAgain = time.Hour

// visibleLink asks hosts on which sudo refuses genv for what every login sees. It is for
// commands that only show what is there.
type visibleLink struct {
	*agent.Pool
	commands agent.Commands
	refused  *recent[agent.Via] // by sudo, and how hosts are asked instead
}

// visible asks hosts for what is there, at an interval, and has the devices measured for
// each answer. The pool must not have been used yet.
func (f *fleet) visible(pool *agent.Pool, interval time.Duration) *visibleLink {
	pool.Measure, pool.DeviceAge = true, func() time.Duration { return interval / 2 }
	refused := &recent[agent.Via]{now: f.Now, lasts: sudoAgain}
	return &visibleLink{Pool: pool, commands: f.commands(), refused: refused}
}

// Snapshot implements controller.Link.
func (l *visibleLink) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	_, refused := l.refused.of(host)
	if !refused {
		s, err := l.Pool.Snapshot(ctx, host)
		if class := remote.ClassOf(err); err == nil || class != remote.Sudo && class != remote.SudoRefused {
			return s, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	s, via, err := l.commands.Visible(ctx, host)
	l.refused.note(host, via, !refused)
	return s, err
}

// About implements controller.Link.
func (l *visibleLink) About(host remote.Host) agent.About {
	about := l.Pool.About(host)
	if via, refused := l.refused.of(host); refused {
		about.Via = via
	}
	return about
}

// refusedAgain is how long a host that refused a login isn't asked again: sshd locks out
// an address at which logins keep failing, and with it all other users of this machine.
const refusedAgain = 10 * time.Minute

// waitLink asks hosts again and again for what every login sees, and never with sudo: it is for `genv remote wait`.
type waitLink struct {
	agent.Commands
	refused *recent[error] // why hosts can't be reached until somebody changes something
}

func newWaitLink(f *fleet) *waitLink {
	return &waitLink{Commands: f.commands(), refused: &recent[error]{now: f.Now, lasts: refusedAgain}}
}

// Snapshot implements controller.Link.
func (l *waitLink) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	if cause, refused := l.refused.of(host); refused {
		return nil, cause
	}
	s, _, err := l.Visible(ctx, host)
	switch remote.ClassOf(err) {
	case remote.Auth, remote.OpenSSH, remote.HostKey, remote.HostKeyChanged, remote.Configuration:
		l.refused.note(host, err, true)
	}
	return s, err
}
