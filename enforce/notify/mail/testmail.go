package mail

import (
	"context"
	"errors"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
)

// SendTest sends a user a mail that says that it is a test, and a copy of it to each address of `copy-to:`, once each.
// It returns what became of them, the mail first; without the mail there are no copies. Done isn't called.
func SendTest(ctx context.Context, o Options, user snapshot.Username) []Result {
	now := o.Now()
	j := newJob(Letter{
		User: user, Items: []notify.Message{{ID: "test", Line: notify.TestText, At: now}},
		Test: true,
	}, now)
	r, data := newQueue(o).deliver(ctx, j, now)
	results := []Result{r}
	if r.Err != nil {
		return results
	}
	j.data = data
	for _, to := range o.Settings.CopyTo {
		c := newQueue(o)
		c.copyTo = to
		r, _ := c.deliver(ctx, j, now)
		results = append(results, r)
	}
	return results
}

// NextStep is what an administrator can do about the error of a Result.
func NextStep(err error) string {
	var server *serverError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrOptedOut):
		return "name another user"
	case errors.Is(err, errNoAddress):
		return "name the user under `addresses:` of `mail:`, or add a `template:`"
	case errors.As(err, &server):
		return "check `smtp:`, `tls:`, `ca-file:` and `password-file:` of `mail:`, and that this machine " +
			"reaches the server"
	case isFinal(err):
		return "correct what was refused: a controller doesn't send such a mail again"
	}
	return "try again later: a controller does so for 4 hours"
}
