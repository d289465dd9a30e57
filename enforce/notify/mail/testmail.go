package mail

import (
	"context"
	"errors"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
)

// SendTest sends a user a mail that says that it is a test, and a copy of it to each address of `copy-to:`, once each.
// It returns what became of them, the mail first; without the mail there are no copies. The Sender isn't started.
func (s *Sender) SendTest(ctx context.Context, user snapshot.Username) []Letter {
	now := s.Now()
	j := newJob(Letter{
		User: user, Items: []notify.Message{{ID: "test", Line: notify.TestText, At: now}}, Test: true,
	}, now)
	j.Err = s.deliver(ctx, &route{}, j, now)
	results := []Letter{j.Letter}
	if j.Err != nil {
		return results
	}
	for _, to := range s.Settings.CopyTo {
		c := copyOf(j, now)
		c.Err = s.deliver(ctx, &route{copyTo: to}, c, now)
		results = append(results, c.Letter)
	}
	return results
}

// NextStep is what an administrator can do about the Err of a Letter.
func NextStep(err error) string {
	switch f := failureOf(err); {
	case err == nil:
		return ""
	case errors.Is(err, ErrOptedOut):
		return "name another user"
	case errors.Is(err, errNoAddress):
		return "name the user under `addresses:` of `mail:`, or add a `template:`"
	case f.server:
		return "check `smtp:`, `tls:`, `ca-file:` and `password-file:` of `mail:`, and that this machine " +
			"reaches the server"
	case f.final:
		return "correct what was refused: a controller doesn't send such a mail again"
	}
	return "try again later: a controller does so for 4 hours"
}
