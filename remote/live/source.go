package live

import (
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Source is what viewers look at: a Feed, or what one of them may see of it (Feed.For).
type Source interface {
	// Fleet is the present state. It must not be changed.
	Fleet() *Fleet
	// Events are those with a number greater than after, the oldest first.
	Events(after uint64) []Event
	// Position says how far it is. It is cheap.
	Position() Position
	// Watch returns a Watcher, which the caller closes.
	Watch() *Watcher
	// HostTrend and UserTrend are the last 24 hours; false if nothing is known.
	HostTrend(host snapshot.Hostname) (Trend, bool)
	UserTrend(user snapshot.Username) (Trend, bool)
	// IdleSince is since when a GPU is attached or held by the same users and computes
	// nothing, as far as it was seen; zero if it isn't.
	IdleSince(host snapshot.Hostname, gpu snapshot.DeviceIndex) time.Time
}

// For is what a user may see who may not see the names of others; an empty name is
// someone who may see none. What others could put a name into is left out: texts,
// environments, commands, containers and process ids, labels, the errors and warnings of
// hosts. What stays are the names of hosts and models, states and numbers.
func (f *Feed) For(user snapshot.Username) Source { return &restricted{f, user} }

// restricted is a Feed as one user may see it.
type restricted struct {
	*Feed
	user snapshot.Username // empty for none
}

// Fleet implements Source.
func (r *restricted) Fleet() *Fleet {
	f := r.Feed.Fleet()
	hidden := r.hidden(f)
	if r.user == "" {
		return hidden
	}
	return r.reveal(hidden, f)
}

// Events implements Source.
func (r *restricted) Events(after uint64) []Event {
	events := r.Feed.Events(after)
	for i := range events {
		if e := &events[i]; !r.owns(e.User) {
			hideEvent(e)
		}
	}
	return events
}

// UserTrend implements Source.
func (r *restricted) UserTrend(user snapshot.Username) (Trend, bool) {
	if !r.owns(user) {
		return Trend{}, false
	}
	return r.Feed.UserTrend(user)
}

func (r *restricted) owns(user snapshot.Username) bool { return user != "" && user == r.user }
