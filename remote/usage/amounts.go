package usage

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// Amounts are what is counted. Times are in seconds of single devices: two devices for an hour are 7,200.
type Amounts struct {
	Attached  int64 `json:"attached_seconds"`
	Used      int64 `json:"used_seconds"`      // with a process on it
	Computing int64 `json:"computing_seconds"` // used with a utilization over 5 %
	Idle      int64 `json:"idle_seconds"`      // attached without a process
	// Unknown is the time without an answer of the host, for what was attached before. It is in no other time.
	Unknown int64 `json:"unknown_seconds"`
	// Unmeasured is the used time without a known utilization, and the attached time without known processes.
	Unmeasured int64 `json:"unmeasured_seconds"`
	// Memory is what processes used, as far as the driver reports it, in MiB times seconds.
	Memory     int64 `json:"memory_mib_seconds"`
	Findings   int64 `json:"findings"`   // new violations of rules
	Terminated int64 `json:"terminated"` // processes that were ended, or signalled on hosts with 1.4.3
	Detached   int64 `json:"detached"`
}

// Fields are pointers to all amounts, in the order above.
func (a *Amounts) Fields() [10]*int64 {
	return [...]*int64{
		&a.Attached, &a.Used, &a.Computing, &a.Idle, &a.Unknown, &a.Unmeasured, &a.Memory, &a.Findings, &a.Terminated,
		&a.Detached,
	}
}

// Add adds amounts.
func (a *Amounts) Add(b *Amounts) { a.add(b, 1) }

func (a *Amounts) add(b *Amounts, n int64) {
	more := b.Fields()
	for i, sum := range a.Fields() {
		*sum += n * *more[i]
	}
}

// SumKind is what a sum is about.
type SumKind int

// The kinds of sums. They are stored as these numbers.
const (
	OfUser SumKind = iota + 1
	OfHost
	OfModel
	OfAll // the fleet; its Name is empty
)

// SumKey says what a sum is about, in an hour.
type SumKey struct {
	Hour int64
	Kind SumKind
	// Name is that of a user as gpus.UserName, of a host or of a model. It is empty if that isn't known, for a finding
	// about several hosts, and for no device.
	Name string
}

// Sum is the amounts of many devices.
type Sum struct {
	Amounts
	Peak int64 // the most devices that were attached at a time
}

// Add adds the sum of another time.
func (s *Sum) Add(other *Sum) {
	s.Amounts.Add(&other.Amounts)
	s.Peak = max(s.Peak, other.Peak)
}

// Sums is what was counted since it was taken last.
type Sums map[SumKey]Sum

// Merge adds others.
func (s Sums) Merge(others Sums) {
	for key := range others {
		sum := others[key]
		s.Add(key, &sum)
	}
}

// Add adds the sum of another time.
func (s Sums) Add(key SumKey, sum *Sum) {
	total := s[key]
	total.Add(sum)
	s[key] = total
}

// DropOldestHour removes the first hour, and returns when it began; false for none.
func (s Sums) DropOldestHour() (hour int64, ok bool) {
	for key := range s {
		if !ok || key.Hour < hour {
			hour, ok = key.Hour, true
		}
	}
	maps.DeleteFunc(s, func(key SumKey, _ Sum) bool { return key.Hour == hour })
	return hour, ok
}

// Days are amounts by the key of a row, and by date.
type Days map[string]map[string]Amounts

// Keys of Days that stand for several.
const (
	Others  = "(others)"   // those beyond the largest
	AllGPUs = "(all GPUs)" // where the rows are days
)

// Add adds the amounts of a day.
func (d Days) Add(key, date string, a *Amounts) {
	if d[key] == nil {
		d[key] = make(map[string]Amounts)
	}
	sum := d[key][date]
	sum.Add(a)
	d[key][date] = sum
}

// regrouped are the amounts by other keys; a key may become several. Others stays.
func (d Days) regrouped(of func(key string) []string) Days {
	regrouped := make(Days)
	for key, days := range d {
		keys := []string{Others}
		if key != Others {
			keys = of(key)
		}
		for date, amounts := range days {
			for _, key := range keys {
				regrouped.Add(key, date, &amounts)
			}
		}
	}
	return regrouped
}

// Largest are the n keys with most time, largest first, and all others joined behind them.
func (d Days) Largest(n int) (keys []string, days Days) {
	sums := make(map[string]Amounts)
	for key, days := range d {
		for _, amounts := range days {
			sum := sums[key]
			sum.Add(&amounts)
			sums[key] = sum
		}
	}
	delete(sums, Others)
	keys = slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		x, y := sums[a], sums[b]
		return cmp.Or(cmp.Compare(max(y.Attached, y.Used), max(x.Attached, x.Used)), cmp.Compare(y.Used, x.Used),
			cmp.Compare(a, b))
	})
	keys = keys[:min(n, len(keys))]
	days = d.regrouped(func(key string) []string {
		if !slices.Contains(keys, key) {
			key = Others
		}
		return []string{key}
	})
	if days[Others] != nil {
		keys = append(keys, Others)
	}
	return keys, days
}

// Store keeps usage by hour and by day. One process writes; others may read meanwhile.
type Store interface {
	// Add keeps an entry as a whole. After an error it may have been kept: add it again as it is, before others.
	Add(ctx context.Context, e *Entry) error
	// Mark is up to when usage is kept; zero before the first entry.
	Mark(ctx context.Context) (Mark, error)
	// Report sums up what is kept of a time.
	Report(ctx context.Context, q Query) (*Report, error)
	// Tidy removes what is too old, and more if the store is too big. It returns a line for people about what it
	// removed too early; empty for nothing.
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
	Sums  Sums
	ID    string // an entry with an ID is kept once
	Since int64  // in seconds since 1970
	Mark         // its end
	Gaps  []Gap  // that were found meanwhile
}

// Mark is how far a store has got.
type Mark struct {
	Until int64 // in seconds since 1970
	Ended bool  // nothing that was counted is missing: the run ended in order
}

// Gap is a time of which nothing is known: no controller ran, or nothing could be kept.
type Gap struct{ Since, Until int64 }

// Query is what a report is about.
type Query struct {
	By           string // ByUser and others
	Since, Until int64  // in seconds since 1970
	Days         bool   // also by day
}

// Kind is the kind of sums that a report needs. Groups are made of their users.
func (q *Query) Kind() SumKind {
	return map[string]SumKind{ByUser: OfUser, ByGroup: OfUser, ByHost: OfHost, ByModel: OfModel, ByDay: OfAll}[q.By]
}

// HourOf is when an hour begins, in seconds since 1970. Some locations' hours begin at half past.
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

// NextDay is when the next day begins: days have 23 to 25 hours.
func NextDay(second int64, in *time.Location) int64 {
	year, month, day := time.Unix(second, 0).In(in).Date()
	return startOfDay(year, month, day+1, in).Unix()
}

// startOfDay is not midnight where the clocks are put forward then.
func startOfDay(year int, month time.Month, day int, in *time.Location) time.Time {
	noon := time.Date(year, month, day, 12, 0, 0, 0, in)
	start := time.Date(year, month, day, 0, 0, 0, 0, in)
	for start.Day() != noon.Day() {
		start = start.Add(15 * time.Minute)
	}
	return start
}
