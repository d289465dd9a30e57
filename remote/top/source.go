package top

import (
	"context"
	"slices"

	"github.com/seed-3119e985/genv/remote/live"
)

// Source has the present state of a fleet.
type Source interface {
	// Next waits for a change, and returns what is there then. The first call doesn't
	// wait. An error says why there is nothing new, and the next call tries again after
	// a moment.
	Next(ctx context.Context) (Update, error)
}

// Update is what a Source has.
type Update struct {
	Fleet *live.Fleet
	// Events are those since the last Update, the oldest first.
	Events []live.Event
	// Origin says who looked at the hosts, such as "controller".
	Origin string
}

// OfFeed is a Source of a feed in this process. Its Close ends the watch.
func OfFeed(feed live.Source, origin string) *FeedSource {
	return &FeedSource{feed: feed, watch: feed.Watch(), origin: origin}
}

// FeedSource implements Source.
type FeedSource struct {
	feed   live.Source
	watch  *live.Watcher
	origin string
	after  uint64 // the number of the last event
}

// Next implements Source.
func (s *FeedSource) Next(ctx context.Context) (Update, error) {
	select {
	case <-ctx.Done():
		return Update{}, ctx.Err()
	case <-s.watch.C:
	}
	u := Update{Fleet: s.feed.Fleet(), Events: s.feed.Events(s.after), Origin: s.origin}
	if len(u.Events) > 0 {
		s.after = u.Events[len(u.Events)-1].Number
	}
	return u, nil
}

// Close ends the watch.
func (s *FeedSource) Close() { s.watch.Close() }

// maxEvents is how many events are kept for the history.
const maxEvents = 4096

// withEvents adds new events to those that are kept.
func withEvents(kept, more []live.Event) []live.Event {
	kept = append(slices.Clip(kept), more...)
	if excess := len(kept) - maxEvents; excess > 0 {
		kept = kept[excess:]
	}
	return kept
}
