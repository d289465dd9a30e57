package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // named zones must not depend on what the machine has installed

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

func (r *reader) readZone(n *strictyaml.Node) {
	name := n.Text()
	if name == "" {
		return
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		n.Failf("timezone: %q is not known; write a name as Europe/Berlin, Asia/Jerusalem or UTC", name)
		return
	}
	r.zone = zone
}

func (r *reader) readSchedules(n *strictyaml.Node) {
	r.file.Schedules = map[string]*Schedule{}
	n.Each(func(key, value *strictyaml.Node) {
		s := &Schedule{Name: key.Text(), zone: r.location()}
		before := r.doc.Errors()
		value.List(s.readHours)
		if value.IsList() && len(s.entries) == 0 && r.doc.Errors() == before {
			value.Failf("the schedule has no hours; write them as {days: mon-fri, hours: 8-18}")
		}
		r.file.Schedules[s.Name] = s
	})
}

func (r *reader) readWhen(n *strictyaml.Node) *Schedule {
	known := slices.Sorted(maps.Keys(r.file.Schedules))
	if len(known) == 0 && n.IsText() {
		n.Failf("when: there are no schedules in the file; add some under `schedules:`")
		return nil
	}
	return r.file.Schedules[n.OneOf(known...)]
}

func (s *Schedule) readHours(n *strictyaml.Node) {
	var on []int
	e := hours{end: minutesADay}
	n.Map(strictyaml.Keys{
		"days":  func(n *strictyaml.Node) { on = readDays(n) },
		"hours": func(n *strictyaml.Node) { e.begin, e.end = readClock(n) },
		"from":  func(n *strictyaml.Node) { e.from = readDate(n) },
		"to":    func(n *strictyaml.Node) { e.to = readDate(n) },
	})
	if on == nil {
		on = []int{0, 1, 2, 3, 4, 5, 6}
	}
	if e.to != 0 && e.to < e.from {
		date := func(day int) string { return time.Unix(int64(day)*minutesADay*60, 0).UTC().Format(time.DateOnly) }
		n.Failf("to: %s is before %s", date(e.to), date(e.from))
	}
	const twice = "%s is in the schedule twice; write hours that do not overlap"
	for _, day := range on {
		if e.days[day] {
			n.Failf(twice, clock(day*minutesADay+e.begin))
			return
		}
		e.days[day] = true
	}
	isDated := func(h hours) bool { return h.from != 0 || h.to != 0 }
	for i := range s.entries { // holidays may be on days that are free anyway
		if minute, both := e.common(&s.entries[i]); both && !isDated(e) && !isDated(s.entries[i]) {
			n.Failf(twice, clock(minute))
			return
		}
	}
	s.entries = append(s.entries, e)
}

func readDays(n *strictyaml.Node) []int {
	on := []int{}
	add := func(n *strictyaml.Node) {
		for word := range strings.SplitSeq(n.Text(), ",") {
			first, last, isRange := strings.Cut(strings.TrimSpace(word), "-")
			if !isRange {
				last = first
			}
			from, to := slices.Index(days, first), slices.Index(days, last)
			if word == "" {
				return // which was said
			}
			if from < 0 || to < 0 {
				n.Failf("days: %q is not known; write them as mon-fri, with mon, tue, wed, thu, fri, sat, sun", word)
				return
			}
			for day := from; ; day = (day + 1) % 7 {
				on = append(on, day)
				if day == to {
					break
				}
			}
		}
	}
	if n.IsList() {
		n.List(add)
	} else {
		add(n)
	}
	return on
}

func readClock(n *strictyaml.Node) (begin, end int) {
	text := n.Text()
	first, last, isRange := strings.Cut(text, "-")
	begin, ok1 := minuteOf(first)
	end, ok2 := minuteOf(last)
	switch {
	case text == "": // which was said
	case !isRange || !ok1 || !ok2 || begin == minutesADay:
		n.Failf("hours: %q is not a range of hours; write them as 8-18 or 08:00-18:30", text)
	case begin == end:
		n.Failf("hours: %q ends when it begins; leave them out for the whole day", text)
	default:
		return begin, end
	}
	return 0, minutesADay
}

func minuteOf(text string) (int, bool) {
	hours, minutes, ok := strings.Cut(strings.TrimSpace(text), ":")
	if !ok {
		minutes = "00"
	}
	h, err1 := strconv.ParseUint(hours, 10, 8)
	m, err2 := strconv.ParseUint(minutes, 10, 8)
	minute := int(h)*60 + int(m)
	return minute, err1 == nil && err2 == nil && len(minutes) == 2 && m < 60 && minute <= minutesADay
}

// Schedule is some hours of a week, or of the weeks between two dates, in local time with daylight saving.
type Schedule struct {
	Name    string
	zone    *time.Location
	entries []hours
}

// hours are an item of a schedule: from one minute of a day up to another, which is excluded, on days of the week from
// Monday on, between two days that are both included. Hours that end before they begin continue on the next day. Days
// count from 1970-01-01; 0 is no such bound.
type hours struct {
	days       [7]bool
	begin, end int
	from, to   int
}

const (
	minutesADay  = 24 * 60
	minutesAWeek = 7 * minutesADay
	firstMonday  = 4 // in 1970
)

// on are the hours that begin on a day, in minutes since 1970.
func (h *hours) on(day int) (from, to int, ok bool) {
	if day < h.from || h.to != 0 && day > h.to || !h.days[(day-firstMonday+7)%7] {
		return 0, 0, false
	}
	from, to = day*minutesADay+h.begin, day*minutesADay+h.end
	if h.end <= h.begin {
		to += minutesADay
	}
	return from, to, true
}

// common is the first shared minute of the week, in the first week, or else the last, that both items have.
func (h *hours) common(other *hours) (first int, found bool) {
	monday := firstMonday
	if low := max(h.from, other.from); low != 0 {
		monday = low
	} else if high := cmp.Or(min(h.to, other.to), max(h.to, other.to)); high != 0 {
		monday = high - 7
	}
	for day := monday - 1; day <= monday+7; day++ {
		for near := day - 1; near <= day+1; near++ {
			from, to, ok := h.on(day)
			otherFrom, otherTo, otherOK := other.on(near)
			minute := max(from, otherFrom, monday*minutesADay)
			if ok && otherOK && minute < min(to, otherTo) && (!found || minute < first) {
				first, found = minute, true
			}
		}
	}
	return (first + minutesAWeek - firstMonday*minutesADay) % minutesAWeek, found
}

func (s *Schedule) common(other *Schedule) (first int, found bool) {
	for i := range s.entries {
		for j := range other.entries {
			if minute, both := s.entries[i].common(&other.entries[j]); both && (!found || minute < first) {
				first, found = minute, true
			}
		}
	}
	return first, found
}

func clock(minute int) string {
	return fmt.Sprintf("%s %02d:%02d", days[minute/minutesADay], minute%minutesADay/60, minute%60)
}

var days = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}

// Contains says whether a time is within the schedule.
func (s *Schedule) Contains(t time.Time) bool { return s.endOf(s.minuteOf(t)) > 0 }

// until is the end of the hours that contain a time; zero if they last for a month or more.
func (s *Schedule) until(t time.Time) time.Time {
	first := s.minuteOf(t)
	end := first
	for next := s.endOf(end); next > 0; next = s.endOf(end) {
		if end = next; end-first > 31*minutesADay {
			return time.Time{}
		}
	}
	return time.Date(1970, 1, 1, 0, end, 0, 0, s.zone)
}

// longest is how long the hours of any week last at most without a break; 0 for a month or more, or with dates.
func (s *Schedule) longest() (longest time.Duration) {
	if slices.ContainsFunc(s.entries, func(h hours) bool { return h.from != 0 || h.to != 0 }) {
		return 0
	}
	for minute := range 7 * minutesADay {
		at := time.Date(1970, 1, 1, 0, minute, 0, 0, s.zone)
		if s.endOf(minute) == 0 {
			continue
		}
		end := s.until(at)
		if end.IsZero() {
			return 0
		}
		longest = max(longest, end.Sub(at))
	}
	return longest
}

// endOf is the last end of the items with a minute since 1970; 0 for none.
func (s *Schedule) endOf(minute int) (end int) {
	for i := range s.entries {
		for _, day := range []int{minute/minutesADay - 1, minute / minutesADay} {
			if from, to, ok := s.entries[i].on(day); ok && minute >= from && minute < to {
				end = max(end, to)
			}
		}
	}
	return end
}

func (s *Schedule) minuteOf(t time.Time) int {
	local := t.In(s.zone)
	return dayOf(local)*minutesADay + local.Hour()*60 + local.Minute()
}

func dayOf(t time.Time) int {
	year, month, day := t.Date()
	return int(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / (minutesADay * 60))
}

func readDate(n *strictyaml.Node) int {
	day, err := time.Parse(time.DateOnly, n.Text())
	if n.IsText() && (err != nil || dayOf(day) < firstMonday) {
		n.Failf("%q is not a date; write it as 2026-12-20", n.Text())
	}
	return dayOf(day)
}
