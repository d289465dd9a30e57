package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// refusedAgain is how long a host that refused a login isn't asked again: sshd locks out
// an address at which logins keep failing, and with it all other users of this machine.
const refusedAgain = 10 * time.Minute

// waitLink asks hosts again and again for what every login sees, and never with sudo: it is
// for `genv remote wait`.
type waitLink struct {
	agent.Commands
	now func() time.Time

	mu      sync.Mutex
	via     map[string]agent.Via // by the name of the host
	refused map[string]refusal
}

// refusal is why a host can't be reached until somebody changes something, and when that
// was found.
type refusal struct {
	at  time.Time
	err error
}

func newWaitLink(f *fleet) *waitLink {
	return &waitLink{
		Commands: f.commands(), now: f.program.Now,
		via: make(map[string]agent.Via), refused: make(map[string]refusal),
	}
}

// Snapshot implements controller.Link.
func (l *waitLink) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	if err := l.refusal(host); err != nil {
		return nil, err
	}
	s, via, err := l.Visible(ctx, host)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.via[host.Name] = via
	switch remote.ClassOf(err) {
	case remote.Auth, remote.OpenSSH, remote.HostKey, remote.HostKeyChanged, remote.Configuration:
		l.refused[host.Name] = refusal{l.now(), err}
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

// About implements controller.Link.
func (l *waitLink) About(host remote.Host) agent.About {
	about := l.Commands.About(host)
	l.mu.Lock()
	defer l.mu.Unlock()
	about.Via = l.via[host.Name]
	return about
}
