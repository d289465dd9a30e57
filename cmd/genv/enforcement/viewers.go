package enforcement

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/metrics"
)

// Viewers serve the live state of a run to people and programs.
type Viewers interface {
	// Asked reports whether a flag or the environment asks for them, so that it is worth
	// saying where they listen.
	Asked() bool
	// Open serves a run until closeAll. addresses are where, for people. After an error
	// nothing is served, and the run doesn't begin.
	Open(ctx context.Context, run Running, log zerolog.Logger) (addresses []string, closeAll func(), err error)
}

// Running is what viewers get of a run.
type Running struct {
	Feed     *live.Feed
	Counters *metrics.Counters
	Queue    *controller.Queue // takes what operators ask for
	LookOnly bool              // it changes nothing, whatever operators ask for
	History  *History          // nil for none
	// Groups are the users of the policy's groups, as they are now. It is safe for concurrent use.
	Groups func() map[string][]string
}
