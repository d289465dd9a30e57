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

// refusedAgain is how long a host that refused a login isn't asked again: sshd locks out
// an address at which logins keep failing, and with it all other users of this machine.
const refusedAgain = 10 * time.Minute

// waitLink asks hosts again and again for what every login sees, and never with sudo: it is for `genv remote wait`.
type waitLink struct {
	agent.Commands
	now func() time.Time

	mu      sync.Mutex
	refused map[string]failedLogin // by the name of the host
}

// failedLogin is why a host can't be reached until somebody changes something, and when that was found.
type failedLogin struct {
	at  time.Time
	err error
}

func newWaitLink(f *fleet) *waitLink {
	return &waitLink{Commands: f.commands(), now: f.program.Now, refused: make(map[string]failedLogin)}
}

// Snapshot implements controller.Link.
func (l *waitLink) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	if err := l.refusal(host); err != nil {
		return nil, err
	}
	s, _, err := l.Visible(ctx, host)
	switch remote.ClassOf(err) {
	case remote.Auth, remote.OpenSSH, remote.HostKey, remote.HostKeyChanged, remote.Configuration:
		l.mu.Lock()
		l.refused[host.Name] = failedLogin{l.now(), err}
		l.mu.Unlock()
	}
	return s, err
}

func (l *waitLink) refusal(host remote.Host) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, refused := l.refused[host.Name]; refused && l.now().Sub(r.at) < refusedAgain {
		return r.err
	}
	return nil
}
