package policy

import (
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // named zones must not depend on what the machine has installed
)

// Schedule is some hours of a week in the file's time zone, in local time: it
// follows the changes to and from daylight saving time.
type Schedule struct {
	Name string
	zone *time.Location
	// spans are sorted and don't overlap.
	spans []span
}

// span is from one minute up to, but not including, another, counted from Monday
// 00:00.
type span struct{ from, to int }

const (
	minutesADay  = 24 * 60
	minutesAWeek = 7 * minutesADay
)

var days = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}

// Contains says whether a time is within the schedule.
func (s *Schedule) Contains(t time.Time) bool {
	local := t.In(s.zone)
	day := (int(local.Weekday()) + 6) % 7 // Monday is 0
	minute := day*minutesADay + local.Hour()*60 + local.Minute()
	return slices.ContainsFunc(s.spans, func(sp span) bool { return minute >= sp.from && minute < sp.to })
}

// common is the first minute of the week that two lists of spans share.
func common(a, b []span) (int, bool) {
	first, found := minutesAWeek, false
	for _, x := range a {
		for _, y := range b {
			if from := max(x.from, y.from); from < min(x.to, y.to) {
				first, found = min(first, from), true
			}
		}
	}
	return first, found
}

// clock is a minute of the week as text, such as "wed 12:00".
func clock(minute int) string {
	return fmt.Sprintf("%s %02d:%02d", days[minute/minutesADay], minute%minutesADay/60, minute%60)
}
