package usage

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// Amounts are counts. Times are device seconds: two devices for an hour are 7,200.
type Amounts struct {
	Attached  int64 `json:"attached_seconds"`
	Used      int64 `json:"used_seconds"`      // with a process on it
	Computing int64 `json:"computing_seconds"` // used with over 5 % utilization
	Idle      int64 `json:"idle_seconds"`      // attached without a process
	// Unknown is time without an answer of the host, for devices attached before. It is in no other time.
	Unknown int64 `json:"unknown_seconds"`
	// Unmeasured is used time without known utilization, and attached time without known processes.
	Unmeasured int64 `json:"unmeasured_seconds"`
	// Memory is what processes used, as far as the driver reports it, in MiB seconds.
	Memory     int64 `json:"memory_mib_seconds"`
	Findings   int64 `json:"findings"`   // new violations
	Terminated int64 `json:"terminated"` // processes ended, or signalled on hosts with 1.4.3
	Detached   int64 `json:"detached"`
}

// Fields returns pointers to all amounts, in the order above.
func (a *Amounts) Fields() [10]*int64 {
	return [...]*int64{
		&a.Attached, &a.Used, &a.Computing, &a.Idle, &a.Unknown, &a.Unmeasured, &a.Memory, &a.Findings, &a.Terminated,
		&a.Detached,
	}
}

// Add adds b.
func (a *Amounts) Add(b *Amounts) { a.add(b, 1) }

func (a *Amounts) add(b *Amounts, n int64) {
	more := b.Fields()
	for i, sum := range a.Fields() {
		*sum += n * *more[i]
	}
}

// SumKind is what a sum is about.
type SumKind int

// The kinds of sums, stored as these numbers.
const (
	OfUser SumKind = iota + 1
	OfHost
	OfModel
	OfAll // the fleet; its Name is empty
)

// SumKey identifies a sum in an hour.
type SumKey struct {
	Hour int64
	Kind SumKind
	// Name is a user (as gpus.UserName), host or model. It is empty if unknown, of several hosts, or without a device.
	Name string
}

// Sum adds up the amounts of many devices.
type Sum struct {
	Amounts
	Peak int64 // maximum of devices attached at once
}

// Add adds another time's sum.
func (s *Sum) Add(other *Sum) {
	s.Amounts.Add(&other.Amounts)
	s.Peak = max(s.Peak, other.Peak)
}

// Sums are the counts since the last Take.
type Sums map[SumKey]Sum

// Merge adds other sums.
func (s Sums) Merge(others Sums) {
	for key := range others {
		sum := others[key]
		s.Add(key, &sum)
	}
}

// Add adds one sum.
func (s Sums) Add(key SumKey, sum *Sum) {
	total := s[key]
	total.Add(sum)
	s[key] = total
}

// DropOldestHour removes the oldest hour and returns its start.
func (s Sums) DropOldestHour() (hour int64, ok bool) {
	for key := range s {
		if !ok || key.Hour < hour {
			hour, ok = key.Hour, true
		}
	}
	maps.DeleteFunc(s, func(key SumKey, _ Sum) bool { return key.Hour == hour })
	return hour, ok
}

// Days has amounts by row key and date.
type Days map[string]map[string]Amounts

const (
	Others  = "(others)"   // all but the largest
	AllGPUs = "(all GPUs)" // for rows that are days
)

// Add adds a day's amounts.
func (d Days) Add(key, date string, a *Amounts) {
	if d[key] == nil {
		d[key] = make(map[string]Amounts)
	}
	sum := d[key][date]
	sum.Add(a)
	d[key][date] = sum
}

// regrouped maps each key to other keys. Others stays.
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

// Largest returns the n keys with the most time, largest first, and all others joined as Others.
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

// Store keeps usage by hour and day. One process writes; others may read meanwhile.
type Store interface {
	// Add stores an entry atomically. After an error it may be stored: retry it unchanged, before others.
	Add(ctx context.Context, e *Entry) error
	// Mark is how far usage is stored; zero before the first entry.
	Mark(ctx context.Context) (Mark, error)
	// Report sums up the stored usage of a period.
	Report(ctx context.Context, q Query) (*Report, error)
	// Tidy removes what is too old, and more if the store is too big. early tells people what it removed too early.
	Tidy(ctx context.Context, now time.Time) (early string, err error)
	Close() error
}

var (
	// ErrFull means that the disk or the store is full: try again later.
	ErrFull = errors.New("there is no room for it")
	// ErrNewer means that a newer genv wrote it: leave it alone.
	ErrNewer = errors.New("it was written by a newer version of genv")
	// ErrDamaged means that it is unreadable: rename it.
	ErrDamaged = errors.New("it is damaged")
	// ErrNone means that there is no usage to read.
	ErrNone = errors.New("there is no usage database")
)

// Entry is the counts of a period.
type Entry struct {
	Sums  Sums
	ID    string // an entry with an ID is stored only once
	Since int64  // Unix time
	Mark         // its end
	Gaps  []Gap  // found meanwhile
}

// Mark is how far a store has got.
type Mark struct {
	Until int64 // Unix time
	Ended bool  // the run ended in order: nothing is missing
}

// Gap is a period without data: no controller ran, or nothing could be stored.
type Gap struct{ Since, Until int64 }

// Query says what to report.
type Query struct {
	By           string // ByUser etc.
	Since, Until int64  // Unix time
	Days         bool   // also per day
}

// Kind is the kind of sums to read. Groups are made from users.
func (q *Query) Kind() SumKind {
	return map[string]SumKind{ByUser: OfUser, ByGroup: OfUser, ByHost: OfHost, ByModel: OfModel, ByDay: OfAll}[q.By]
}

// HourOf returns an hour's start as Unix time. In some locations hours start at half past.
func HourOf(second int64, in *time.Location) int64 {
	_, offset := time.Unix(second, 0).In(in).Zone()
	local := second + int64(offset)
	return second - ((local%3600)+3600)%3600
}

// DayOf returns the start of the day.
func DayOf(second int64, in *time.Location) int64 {
	year, month, day := time.Unix(second, 0).In(in).Date()
	return startOfDay(year, month, day, in).Unix()
}

// NextDay returns the next day's start: days have 23 to 25 hours.
func NextDay(second int64, in *time.Location) int64 {
	year, month, day := time.Unix(second, 0).In(in).Date()
	return startOfDay(year, month, day+1, in).Unix()
}

// startOfDay isn't midnight if clocks are set forward then.
func startOfDay(year int, month time.Month, day int, in *time.Location) time.Time {
	noon := time.Date(year, month, day, 12, 0, 0, 0, in)
	start := time.Date(year, month, day, 0, 0, 0, 0, in)
	for start.Day() != noon.Day() {
		start = start.Add(15 * time.Minute)
	}
	return start
}
