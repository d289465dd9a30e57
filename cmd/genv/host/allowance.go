package host

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// allowances pass on what the policy allows to root's service, which tells people. Where the state isn't root's, no
// user is told.
type allowances struct {
	pass func(context.Context, service.Allowance) error

	passing sync.WaitGroup
	mu      sync.Mutex
	busy    bool
	last    *service.Allowance
	at      time.Time // when the last one was passed on
}

// passWithin is how long the service may take to note it.
const passWithin = 2 * time.Second

// renew passes on an allowance that is new, or of which a third of the time is over. It doesn't wait for the
// service; what the service doesn't take is tried again the next time.
func (a *allowances) renew(next *service.Allowance) {
	if next == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	holds := time.Since(a.at) < time.Duration(next.ForMS)*time.Millisecond/3
	if a.busy || holds && reflect.DeepEqual(next, a.last) {
		return
	}
	a.busy, a.last, a.at = true, next, time.Now()
	a.passing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), passWithin)
		defer cancel()
		err := a.pass(ctx, *next)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.busy = false; err != nil { // the service may start later
			a.last = nil
		}
	})
}

func (a *allowances) close() { a.passing.Wait() }
