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

// Each calls do for every host, at most limit at a time, and returns the results in the order of the hosts. The error
// of one host neither delays nor cancels another host. When ctx ends, the remaining hosts get its cause as their error;
// do must return when its ctx ends.
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

// notBegun is the error of a host for which nothing was done. A cause with a class keeps it.
func notBegun(cause error) error {
	if _, known := errors.AsType[*Error](cause); known {
		return cause
	}
	return Errorf(Cancelled, "not begun: %w", cause)
}

// Outlasting is a context that ends when it is cancelled, or some time after ctx, with its cause:
// for what was begun before a run ends, and is worth a moment then.
func Outlasting(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-longer.Done():
		case <-time.After(by):
			cancel(context.Cause(ctx))
		}
	})
	return longer, func() { stop(); cancel(context.Canceled) }
}

// While returns a context for what may be begun only while may returns nil, such as the orders of
// a controller that leads. The sender of a command or a request asks with MayBegin right before,
// after all that it had to wait for: a place among others, a login, its turn on a connection.
func While(ctx context.Context, may func() error) context.Context {
	return context.WithValue(ctx, whileKey{}, may)
}

type whileKey struct{}

// MayBegin returns the error of the function that While was given; nil without one. Nothing may be sent after an error.
func MayBegin(ctx context.Context) error {
	may, _ := ctx.Value(whileKey{}).(func() error)
	if may == nil {
		return nil
	}
	return may()
}

// Sleep waits; false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
