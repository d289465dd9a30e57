package top

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
)

// Next waits for a change, and returns the new state. The first call doesn't wait. After an error, the next one retries
// after a pause.
type Next func(ctx context.Context) (Update, error)

// Update is the present state of a fleet.
type Update struct {
	Fleet  *live.FleetState
	Events []live.FleetEvent // since the last Update, oldest first
	Origin string            // who asked the hosts, such as "controller"
}

// OfFeed follows a feed in this process until stop is called.
func OfFeed(feed live.Source, origin string) (next Next, stop func()) {
	changes, stop := feed.Watch()
	after := uint64(0)
	return func(ctx context.Context) (Update, error) {
		select {
		case <-ctx.Done():
			return Update{}, ctx.Err()
		case <-changes:
		}
		u := Update{Fleet: feed.Fleet(), Events: feed.Events(after), Origin: origin}
		if last := len(u.Events) - 1; last >= 0 {
			after = u.Events[last].Number
		}
		return u, nil
	}, stop
}

const maxEvents = 4096 // kept for the history

func withEvents(kept, more []live.FleetEvent) []live.FleetEvent {
	kept = append(slices.Clip(kept), more...)
	if excess := len(kept) - maxEvents; excess > 0 {
		kept = kept[excess:]
	}
	return kept
}

const (
	askEvery    = 500 * time.Millisecond // or pauseFactor times an answer's duration, for large fleets
	pauseFactor = 9
	retryEvery  = time.Second // to reach a lost controller
)

// Follow follows a controller, and reconnects.
func Follow(client *live.Client) Next {
	var free time.Time // earliest next request
	var last *live.FleetState
	ask := asker(client)
	return func(ctx context.Context) (Update, error) {
		for {
			if !remote.Sleep(ctx, time.Until(free)) {
				return Update{}, ctx.Err()
			}
			begun := time.Now()
			u, err := ask(ctx)
			if err != nil {
				free, last = time.Now().Add(retryEvery), nil
				return Update{}, fmt.Errorf("the controller doesn't answer (%w); trying again every second", err)
			}
			free = time.Now().Add(max(askEvery, pauseFactor*time.Since(begun)))
			if u.Fleet != last || len(u.Events) > 0 {
				last = u.Fleet
				return u, nil
			}
		}
	}
}

// asker returns the state, and the events since the last call. Each controller counts from 1.
func asker(client *live.Client) Next {
	run, after := "", uint64(0)
	return func(ctx context.Context) (Update, error) {
		fleet, err := client.Fleet(ctx)
		if err != nil {
			return Update{}, err
		}
		if fleet.Run != run {
			run, after = fleet.Run, 0
		}
		events, err := client.Events(ctx, after)
		if err != nil || events.Run != run { // it has restarted
			return Update{Fleet: fleet, Origin: "controller"}, err
		}
		after = events.Last
		return Update{Fleet: fleet, Events: withEvents(nil, events.Events), Origin: "controller"}, nil
	}
}
