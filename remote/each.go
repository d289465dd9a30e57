package remote

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// Result is the value of a host, or its error.
type Result[T any] struct {
	Host    Host
	Value   T
	Err     error
	Elapsed time.Duration
}

// Each calls do for every host, at most limit at a time, and returns the results
// in the order of the hosts. The error of one host neither delays nor cancels
// another host. When ctx ends, the remaining hosts get its cause as their error; do
// must return when its ctx ends.
func Each[T any](ctx context.Context, hosts []Host, limit int, do func(context.Context, Host) (T, error)) []Result[T] {
	results := make([]Result[T], len(hosts))
	var group errgroup.Group // without a context, so that an error cancels nothing
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

// notBegun is the error of a host for which nothing was done. A cause with a class
// keeps it.
func notBegun(cause error) error {
	var known *Error
	if errors.As(cause, &known) {
		return cause
	}
	return Errorf(Cancelled, "not begun: %w", cause)
}
