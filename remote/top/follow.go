package top

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
)

const (
	// askEvery is the time between two questions for something new, and pauseFactor how often longer than an answer
	// takes it is otherwise: a large fleet is asked for less often.
	askEvery    = 500 * time.Millisecond
	pauseFactor = 9
	// retryEvery is the time between two attempts to reach a controller that is gone.
	retryEvery = time.Second
)

// SocketSource is a Source of a controller's socket. It connects again when the controller was away.
type SocketSource struct {
	client *live.Client
	free   time.Time        // when it may be asked again
	fleet  *live.FleetState // the last one; nil before the first, and after an error
	run    string           // of the controller
	after  uint64           // the number of its last event
}

// Follow follows a controller. The caller closes the SocketSource.
func Follow(client *live.Client) *SocketSource { return &SocketSource{client: client} }

// Close ends the connections.
func (f *SocketSource) Close() { f.client.Close() }

// Next implements Source.
func (f *SocketSource) Next(ctx context.Context) (Update, error) {
	for {
		if !remote.Sleep(ctx, time.Until(f.free)) {
			return Update{}, ctx.Err()
		}
		begun := time.Now()
		u, err := f.ask(ctx)
		if err != nil {
			f.free, f.fleet = time.Now().Add(retryEvery), nil
			return Update{}, fmt.Errorf("the controller doesn't answer (%w); trying again every second", err)
		}
		f.free = time.Now().Add(max(askEvery, pauseFactor*time.Since(begun)))
		if u.Fleet != f.fleet || len(u.Events) > 0 {
			f.fleet = u.Fleet
			return u, nil
		}
	}
}

// ask is the present state, and the events since the last time. Another controller counts from 1.
func (f *SocketSource) ask(ctx context.Context) (Update, error) {
	fleet, err := f.client.Fleet(ctx)
	if err != nil {
		return Update{}, err
	}
	if fleet.Run != f.run {
		f.run, f.after = fleet.Run, 0
	}
	events, err := f.client.Events(ctx, f.after)
	if err != nil || events.Run != f.run { // it was started again meanwhile
		return Update{Fleet: fleet, Origin: "controller"}, err
	}
	f.after = events.Last
	return Update{Fleet: fleet, Events: withEvents(nil, events.Events), Origin: "controller"}, nil
}
