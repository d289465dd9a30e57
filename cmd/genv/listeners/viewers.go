package listeners

import (
	"context"
	"net/http"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/usage/report"
)

// Viewers serves a run of enforcement where a Config says. It implements
// enforcement.Viewers.
type Viewers struct {
	Config
	Program *command.Program
}

// Open implements enforcement.Viewers.
func (v Viewers) Open(ctx context.Context, run enforcement.Running, log zerolog.Logger) (addresses []string, closeAll func(), err error) {
	exporter := &metrics.Exporter{Feed: run.Feed, Counters: run.Counters, Now: v.Program.Now, Version: v.Program.Version}
	open, err := Open(ctx, v.Config, Shown{Feed: run.Feed, Metrics: exporter, Actions: actionsFor(run), Usage: readerOf(run)}, log)
	if err != nil {
		return nil, nil, err
	}
	return open.Addresses, open.Close, nil
}

// readerOf reads the history of a run; nil for none.
func readerOf(run enforcement.Running) *report.Reader {
	if run.History == nil {
		return nil
	}
	return run.History.Reader(run.Groups)
}

// actionsFor serves what operators ask a run to do by hand.
func actionsFor(run enforcement.Running) http.Handler {
	do := run.Queue.Do
	if run.LookOnly {
		do = live.RefuseActions(operator.Refuse(operator.Unable, "Ask the controller that runs genv remote enforce.", "this is genv remote watch: it changes nothing"))
	}
	return live.NewActions(do, enforcement.UserNames())
}
