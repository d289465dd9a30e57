package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote/agent"
)

// guarded is this machine's kernel guard by a controller's orders. From the first order on, this process keeps it
// unless another one does.
type guarded struct {
	dir  string // root's run folder
	now  func() (guard.At, error)
	keep func(context.Context) // until the context ends
	log  zerolog.Logger

	keeping sync.WaitGroup
	stop    func() // nil before the first order
}

func keepTrying(ctx context.Context, log zerolog.Logger, keep func(context.Context) error) {
	const least, most = 250 * time.Millisecond, 30 * time.Second
	pause, said := least, ""
	for {
		begun := time.Now()
		err := keep(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if time.Since(begun) > most { // it worked for a while
			pause, said = least, ""
		}
		if text := err.Error(); text != said {
			said = text
			log.Error().Err(err).Msg("the guard is not kept: trying again")
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, most)
	}
}

// Order is an agent.Answers.Guard.
func (g *guarded) Order(_ context.Context, r agent.GuardRequest) (answer agent.GuardAnswer, err error) {
	if !strings.HasPrefix(r.ID, agent.GuardPrefix) {
		return answer, fmt.Errorf("the id %q is not that of a controller", r.ID)
	}
	now, err := g.now()
	if err != nil {
		return answer, err
	}
	present, given, err := guard.OfferOrder(g.dir, r.Order, r.ID, now, func(present guard.Order, err error) bool {
		if err != nil && !errors.Is(err, guard.ErrNoOrder) {
			g.log.Warn().Err(err).Msg("the last order can't be read: it is replaced")
		}
		return replaces(&r, &present)
	})
	if err != nil {
		return answer, fmt.Errorf("the order can't be given to the guard: %w", err)
	}
	if given {
		g.start(r.Order.Mode)
	}
	answer.State = g.state(&r, now)
	if r.Order.Mode != guard.Off && turnedOff(&present) {
		answer.State.Reason = fmt.Sprintf("it was turned off by %s. On the host, `sudo genv guard resume` lets the "+
			"policy turn it on again", present.By)
	}
	return answer, nil
}

// replaces reports whether a controller's order replaces the present one. The fleet's policy has priority over orders
// given on the host, except that what a person turned off there stays off. A controller turns off only its own orders.
func replaces(r *agent.GuardRequest, present *guard.Order) bool {
	if r.Order.Mode == guard.Off {
		return present.ID == r.ID && present.Mode != guard.Off
	}
	return !turnedOff(present)
}

func turnedOff(present *guard.Order) bool {
	return present.ID != "" && present.Mode == guard.Off && !strings.HasPrefix(present.ID, agent.GuardPrefix)
}

func (g *guarded) start(m guard.Mode) {
	if g.stop != nil || m == guard.Off {
		return
	}
	var ctx context.Context
	ctx, g.stop = context.WithCancel(context.Background())
	g.keeping.Go(func() { g.keep(ctx) })
}

// close ends keeping. The guard in the kernel stays until its lease ends.
func (g *guarded) close() {
	if g.stop != nil {
		g.stop()
		g.keeping.Wait()
	}
}

func (g *guarded) state(r *agent.GuardRequest, now guard.At) agent.GuardState {
	status, err := guard.ReadStatus(g.dir)
	if err != nil {
		return agent.GuardState{} // no guard yet
	}
	s := agent.GuardState{Mode: status.Now(now.Time), Problems: status.Problems}
	if s.Mode != guard.Off {
		s.LeftMS = status.Until.Sub(now.Time).Milliseconds()
	}
	if status.Order != nil && status.Order.Mode == r.Order.Mode { // else Reason is about an earlier order
		s.Reason = status.Reason
	}
	denials, err := guard.ReadDenials(g.dir)
	if err != nil {
		s.Problems = append(s.Problems, "the denials can't be read: "+err.Error())
	}
	s.Denied = denials.Recent(now.Time)
	return s
}
