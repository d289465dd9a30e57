package usage

import "time"

// Amounts are what is counted. Times are in seconds of a device: two devices for an hour are
// 7,200.
type Amounts struct {
	Attached  int64
	Used      int64 // a process was on it
	Computing int64 // used, with a utilization over 5 %
	Idle      int64 // attached, and no process was on it
	// Unknown is the time in which the host didn't answer, for what was attached before. It is
	// in none of the other times.
	Unknown int64
	// Unmeasured is the part of Used for which the driver reports no utilization, so that it
	// isn't known if it is Computing, and the part of Attached for which it doesn't report
	// processes, so that it isn't known if it is Idle.
	Unmeasured int64
	// Memory is what processes used, in MiB times seconds. Processes of which the driver
	// reports no memory are not in it.
	Memory     int64
	Findings   int64 // new violations of rules
	Terminated int64 // processes that were ended, or signalled on hosts that can't say more
	Detached   int64
}

// Add adds other amounts.
func (a *Amounts) Add(b *Amounts) { a.add(b, 1) }

// add adds other amounts n times.
func (a *Amounts) add(b *Amounts, n int64) {
	a.Attached += n * b.Attached
	a.Used += n * b.Used
	a.Computing += n * b.Computing
	a.Idle += n * b.Idle
	a.Unknown += n * b.Unknown
	a.Unmeasured += n * b.Unmeasured
	a.Memory += n * b.Memory
	a.Findings += n * b.Findings
	a.Terminated += n * b.Terminated
	a.Detached += n * b.Detached
}

// Kind is by what a sum is.
type Kind int

// The kinds of sums. They are stored as these numbers.
const (
	ByUser Kind = iota + 1
	ByHost
	ByModel
	OfAll // the fleet; its Name is empty
)

// SumKey says what a sum is about, in an hour.
type SumKey struct {
	Hour int64
	Kind Kind
	// Name is that of a user as gpus.UserName, of a host or of a model. It is empty where that isn't known, or
	// for what is about several hosts, as a cap is, or about no device.
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

// Merge adds what others have.
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

// DropOldestHour removes the first hour and returns when it began, so that what can't be
// stored doesn't fill the memory. It is false if there are no sums.
func (s Sums) DropOldestHour() (hour int64, ok bool) {
	for key := range s {
		if !ok || key.Hour < hour {
			hour, ok = key.Hour, true
		}
	}
	for key := range s {
		if key.Hour == hour {
			delete(s, key)
		}
	}
	return hour, ok
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

// MonthOf is when the month of a moment begins.
func MonthOf(second int64, in *time.Location) int64 {
	year, month, _ := time.Unix(second, 0).In(in).Date()
	return startOfDay(year, month, 1, in).Unix()
}

// NextMonth is when the month after that of a moment begins.
func NextMonth(second int64, in *time.Location) int64 {
	year, month, _ := time.Unix(second, 0).In(in).Date()
	return startOfDay(year, month+1, 1, in).Unix()
}

// startOfDay is the first moment of a day, which is not midnight where the clocks are put
// forward then.
func startOfDay(year int, month time.Month, day int, in *time.Location) time.Time {
	noon := time.Date(year, month, day, 12, 0, 0, 0, in)
	start := time.Date(year, month, day, 0, 0, 0, 0, in)
	for start.Day() != noon.Day() {
		start = start.Add(15 * time.Minute)
	}
	return start
}

// span is a time in whole seconds, from its first second to before its end.
type span struct{ from, to int64 }

// hours calls f for each hour of a span, with the seconds of the span in it.
func (s span) hours(in *time.Location, f func(hour, seconds int64)) {
	for at := s.from; at < s.to; {
		hour := HourOf(at, in)
		end := min(s.to, hour+3600)
		f(hour, end-at)
		at = end
	}
}

// between is the time between two looks, in which as much time elapsed. It ends at the second
// one by the wall clock, also if that was set meanwhile.
func between(last, now time.Time, elapsed time.Duration) span {
	s := span{last.Unix(), now.Unix()}
	if step := now.Round(0).Sub(last.Round(0)) - elapsed; step > time.Second || step < -time.Second {
		s.from = s.to - int64(elapsed.Round(time.Second)/time.Second)
	}
	return s
}
