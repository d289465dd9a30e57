// Package store says what a store of usage does, whatever database is behind it, and which
// parts of it answer a query. It opens none; package sqlite has one.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/seed-3119e985/genv/remote/usage"
)

// Store keeps usage by hour and by day. One process writes; others may read meanwhile.
type Store interface {
	// Add keeps an entry, as a whole or, with an error, not at all: then it may be tried again.
	// ErrFull says that there is no room, ErrUnsure that it may have been kept nevertheless.
	Add(ctx context.Context, e *Entry) error
	// Mark is up to when usage is kept; zero before the first entry.
	Mark(ctx context.Context) (Mark, error)
	// Report sums up what is kept of a time.
	Report(ctx context.Context, q Query) (Report, error)
	// Tidy removes what is older than the store keeps, and more if it has grown beyond its
	// bounds. It returns a line for people about what it had to remove too early; empty for
	// nothing.
	Tidy(ctx context.Context, now time.Time) (early string, err error)
	Close() error
}

// Forgetter is a Store that can forget users.
type Forgetter interface {
	// RowsOf counts the rows about users.
	RowsOf(ctx context.Context, users ...string) (int64, error)
	// Forget gives the rows about users to usage.Forgotten, so that all sums stay, and removes the names from
	// the database and its files. It may be called while another process adds entries. If it ends early, it can
	// be called again.
	Forget(ctx context.Context, users ...string) error
}

// Pseudonyms has Tidy replace names of users that are old. The zero Pseudonyms keeps names.
type Pseudonyms struct {
	// After is how old whole days are whose users get pseudonyms.
	After time.Duration
	// Of is the pseudonym of a user, as of usage.Pseudonym.
	Of func(user string) string
}

// Before is the beginning of the day up to which users get pseudonyms; 0 for never.
func (p *Pseudonyms) Before(now time.Time, in *time.Location) int64 {
	if p.Of == nil {
		return 0
	}
	return usage.DayOf(now.Add(-p.After).Unix(), in)
}

// Errors of a Store.
var (
	// ErrFull says that the disk or the store is full: try again later.
	ErrFull = errors.New("there is no room for it")
	// ErrNewer says that a newer genv wrote it: leave it alone.
	ErrNewer = errors.New("it was written by a newer version of genv")
	// ErrDamaged says that it can't be read any more: move it aside.
	ErrDamaged = errors.New("it is damaged")
	// ErrUnsure says that it isn't known whether an entry was kept: add it again, with the
	// same ID, before others.
	ErrUnsure = errors.New("it isn't known whether that was written")
	// ErrNone says that there is no usage to read.
	ErrNone = errors.New("there is no usage history")
)

// For how long hours and days are kept, unless something else is asked for.
const (
	DefaultKeepHours = 35 * 24 * time.Hour
	DefaultKeepDays  = 731 * 24 * time.Hour
)

// Entry is what was counted in a time.
type Entry struct {
	usage.Batch
	// ID is that of the entry: a store whose Add may return ErrUnsure keeps one with the same
	// ID once. Empty for none.
	ID    string
	Since int64 // the time, in seconds since 1970
	Mark        // its end
	Gaps  []Gap // times of which nothing is known, found meanwhile
}

// Mark is how far a store has got.
type Mark struct {
	Until int64 // in seconds since 1970
	Ended bool  // nothing that was counted is missing: the run ended in order
}

// Gap is a time in which nothing was counted, since no controller ran or nothing could be
// kept.
type Gap struct{ Since, Until int64 }

// Query is what a report is about.
type Query struct {
	Kind usage.Kind
	// ByDay has the sums of each day instead, for the fleet.
	ByDay        bool
	Since, Until int64
}

// Report is what is known of a time.
type Report struct {
	// Since and Until are the time: that of the query, extended to whole hours, or to whole
	// days where no hours are kept any more.
	Since, Until int64
	Begun        int64 // from when on usage is kept
	Mark         Mark
	// Missing is for how many seconds of the time nothing is known.
	Missing int64
	Rows    []Row
	Total   usage.Sum // of all devices
}

// Row is the sum of a user, a host or a model, or of a day, by its date.
type Row struct {
	Name string
	usage.Sum
}

// Table is a part of a store that has sums.
type Table int

// The tables.
const (
	Hours Table = iota
	Days
)

// Part is a time, and where its sums are.
type Part struct {
	Table
	Since, Until int64
}

// Parts divide the time of a query: whole days are in Days, what is before and after them in
// Hours. hours is from when on hours are kept: what is earlier is in whole days only, so the
// time may begin and end earlier and later than asked for.
func Parts(since, until, hours int64, in *time.Location) (parts []Part) {
	if until <= since {
		return nil
	}
	since = usage.HourOf(since, in)
	if end := usage.HourOf(until, in); end < until {
		until = end + 3600
	}
	first, last := usage.DayOf(since, in), usage.DayOf(until, in) // last is the day that isn't whole
	switch {
	case first == since:
	case first < hours:
		since = first
	default:
		first = usage.NextDay(since, in)
	}
	if last < hours && last < until {
		last = usage.NextDay(until, in)
		until = last
	}
	if first >= last {
		return []Part{{Hours, since, until}}
	}
	for _, p := range []Part{{Hours, since, first}, {Days, first, last}, {Hours, last, until}} {
		if p.Since < p.Until {
			parts = append(parts, p)
		}
	}
	return parts
}
