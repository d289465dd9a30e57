package hooks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

// errNoEvents is why a hook is never run.
var errNoEvents = errors.New("its `events:` are empty, so that it gets none")

// SendTest sends each hook an event that says that it is a test, about a user: the first one of those that
// the hook gets, once, and as a Queue would. It returns what became of them, in the order of the hooks.
func SendTest(ctx context.Context, hooks []policy.Hook, user snapshot.Username, now time.Time) []Result {
	results := make([]Result, len(hooks))
	var running sync.WaitGroup
	for i, h := range hooks {
		results[i] = Result{To: nameOf(h), Webhook: h.Webhook != "", Err: errNoEvents}
		if len(h.On) == 0 {
			continue
		}
		running.Go(func() {
			r := &results[i]
			if r.Event, r.Err = testOf(h.On[0], user, now); r.Err == nil {
				_, r.Err = attempt(ctx, h, r.Event)
			}
		})
	}
	running.Wait()
	return results
}

// testOf is the event of a test. What reads the texts of findings shows what it is.
func testOf(name policy.Event, user snapshot.Username, now time.Time) (Event, error) {
	return Notice{Event: name, Test: true, Findings: []NoticedFinding{{
		Finding: enforce.Finding{ID: "test", User: user, Since: now.UTC()}, Line: notify.TestText,
		Advice: "There is nothing to do.",
	}}}.at(now)
}
