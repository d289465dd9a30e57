package local

import (
	"cmp"
	"context"
	"slices"

	"github.com/seed-3119e985/genv/enforce/local/asked"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// New makes an Executor.
func New(inspector Inspector, files StateFiles, options ExecutorOptions) *Executor {
	options.KillWait = cmp.Or(options.KillWait, order.KillWait)
	return &Executor{
		inspector: inspector, stateFiles: files, options: options,
		memories: &memories{of: map[proc.ID]processRecord{}},
		onAction: func(string) {}, onWarning: func(string) {},
	}
}

// Execute carries out an order once, first the detachments, then the terminations, and returns the outcome of each
// item: those of order.Detach in their order, then those of order.Terminate in theirs. Nothing is retried. When ctx
// ends, no further step is begun; items that were not begun are StatusFailed.
//
// Calls don't wait for each other. An order that is passed twice is carried out twice: the caller must prevent that.
func (x *Executor) Execute(ctx context.Context, o order.Order) []order.Outcome {
	e := &execution{Executor: x, id: o.ID, gpus: o.GPUs, Options: o.Options}
	e.Grace, e.Kill = cmp.Or(o.Grace, x.options.Grace), x.options.Kill || o.Kill
	e.Unprotected = slices.Concat(x.options.Unprotected, o.Unprotected)
	detached := e.detach(ctx, o.Detach)
	return append(detached, e.terminate(ctx, o.Terminate)...)
}

// As returns an Executor with the same memory that carries out the orders of a controller.
func (x *Executor) As(asker asked.Authority) *Executor {
	other := *x
	other.asker = asker
	return &other
}

// OnWarning returns an Executor with the same memory that calls f with what went wrong and is
// no outcome of an item, in the goroutine of Execute.
func (x *Executor) OnWarning(f func(text string)) *Executor {
	other := *x
	other.onWarning = f
	return &other
}

// OnAction returns an Executor with the same memory that calls f with 1.4.3's line
// for each action, right after it, in the goroutine of Execute.
func (x *Executor) OnAction(f func(line string)) *Executor {
	other := *x
	other.onAction = f
	return &other
}
