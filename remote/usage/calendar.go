package usage

import "time"

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
