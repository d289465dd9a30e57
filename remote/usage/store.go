package usage

import (
	"context"
	"errors"
	"time"
)

// Store keeps usage by hour and by day, as that of package store does. One process writes; others may read meanwhile.
type Store interface {
	// Add keeps an entry as a whole. With an error it may have been kept nevertheless: add it again as it is, before
	// others. ErrFull says that there is no room.
	Add(ctx context.Context, e *Entry) error
	// Mark is up to when usage is kept; zero before the first entry.
	Mark(ctx context.Context) (Mark, error)
	// Report sums up what is kept of a time.
	Report(ctx context.Context, q Query) (*Report, error)
	// Tidy removes what is older than the store keeps, and more if it has grown beyond its bounds. It returns a line
	// for people about what it had to remove too early; empty for nothing.
	Tidy(ctx context.Context, now time.Time) (early string, err error)
	Close() error
}

// Errors of a Store.
var (
	// ErrFull says that the disk or the store is full: try again later.
	ErrFull = errors.New("there is no room for it")
	// ErrNewer says that a newer genv wrote it: leave it alone.
	ErrNewer = errors.New("it was written by a newer version of genv")
	// ErrDamaged says that it can't be read any more: give it another name.
	ErrDamaged = errors.New("it is damaged")
	// ErrNone says that there is no usage to read.
	ErrNone = errors.New("there is no usage database")
)

// Entry is what was counted in a time.
type Entry struct {
	Sums Sums
	// ID is that of the entry, which is kept once. Empty for none.
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

// Gap is a time in which nothing was counted, since no controller ran or nothing could be kept.
type Gap struct{ Since, Until int64 }

// Query is what a report is about.
type Query struct {
	By           string // ByUser and others
	Since, Until int64  // in seconds since 1970
	Days         bool   // also by day
}

// Kind is the kind of sums that a report needs: those of groups are made of those of their users.
func (q *Query) Kind() SumKind {
	return map[string]SumKind{ByUser: OfUser, ByGroup: OfUser, ByHost: OfHost, ByModel: OfModel, ByDay: OfAll}[q.By]
}

// HourOf is when the hour of a moment begins, by the wall clock of a location, where it may
// begin at half past. Both are in seconds since 1970.
func HourOf(second int64, in *time.Location) int64 {
	_, offset := time.Unix(second, 0).In(in).Zone()
	local := second + int64(offset)
	return second - ((local%3600)+3600)%3600
}

// DayOf is when the day of a moment begins.
func DayOf(second int64, in *time.Location) int64 {
	year, month, day := time.Unix(second, 0).In(in).Date()
	return startOfDay(year, month, day, in).Unix()
}

// NextDay is when the day after that of a moment begins: days have 23 to 25 hours.
func NextDay(second int64, in *time.Location) int64 {
	year, month, day := time.Unix(second, 0).In(in).Date()
	return startOfDay(year, month, day+1, in).Unix()
}

// startOfDay is the first moment of a day, which is not midnight where the clocks are put forward then.
func startOfDay(year int, month time.Month, day int, in *time.Location) time.Time {
	noon := time.Date(year, month, day, 12, 0, 0, 0, in)
	start := time.Date(year, month, day, 0, 0, 0, 0, in)
	for start.Day() != noon.Day() {
		start = start.Add(15 * time.Minute)
	}
	return start
}
