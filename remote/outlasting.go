package remote

import (
	"context"
	"time"
)

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
