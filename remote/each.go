package remote

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// Result is what came of a host: a value, or the error in its place.
type Result[T any] struct {
	Host    Host
	Value   T
	Err     error
	Elapsed time.Duration
}

// Each calls do for every host, at most limit at a time, and returns the results
// in the order of the hosts. An error is kept in its host's Result and neither
// delays nor cancels another host. When ctx ends, hosts that were not begun get
// its cause as their error; do is expected to heed ctx itself.
func Each[T any](ctx context.Context, hosts []Host, limit int, do func(context.Context, Host) (T, error)) []Result[T] {
	results := make([]Result[T], len(hosts))
	var group errgroup.Group // without a context: nobody cancels anybody
	group.SetLimit(max(limit, 1))
	for i, host := range hosts {
		group.Go(func() error {
			results[i] = one(ctx, host, do)
			return nil
		})
	}
	_ = group.Wait() // each host's error is in its result
	return results
}

func one[T any](ctx context.Context, host Host, do func(context.Context, Host) (T, error)) Result[T] {
	r := Result[T]{Host: host}
	if ctx.Err() != nil {
		r.Err = notBegun(context.Cause(ctx))
		return r
	}
	start := time.Now()
	r.Value, r.Err = do(ctx, host)
	r.Elapsed = time.Since(start)
	return r
}

// notBegun is the error of a host for which nothing was done; a cause that has
// a class keeps it.
func notBegun(cause error) error {
	var known *Error
	if errors.As(cause, &known) {
		return cause
	}
	return Errorf(Cancelled, "not begun: %w", cause)
}
