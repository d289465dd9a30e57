package policy

import (
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
		value.List(s.readHours)
		if value.IsList() && len(s.entries) == 0 && !r.failed() {
			value.Failf("the schedule has no hours; write them as {days: mon-fri, hours: 8-18}")
		}
		r.file.Schedules[s.Name] = s
	})
}

// readWhen reads the name of a schedule.
func (r *reader) readWhen(n *strictyaml.Node) *Schedule {
	known := slices.Sorted(maps.Keys(r.file.Schedules))
	if len(known) == 0 {
		n.Failf("when: there are no schedules in the file; add some under `schedules:`")
		return nil
	}
	return r.file.Schedules[n.OneOf(known...)]
}

// readHours reads an item of a schedule: days, hours on each of them, and dates.
func (s *Schedule) readHours(n *strictyaml.Node) {
	var on []int
	var e hours
	of := weekMinutes{0, minutesADay}
	n.Map(strictyaml.Keys{
		"days":  func(n *strictyaml.Node) { on = readDays(n) },
		"hours": func(n *strictyaml.Node) { of = readClock(n) },
		"from":  func(n *strictyaml.Node) { e.from = readDate(n) },
		"to":    func(n *strictyaml.Node) { e.to = readDate(n) },
	})
	if e.from != "" && e.to != "" && e.to < e.from {
		n.Failf("to: %s is before %s", e.to, e.from)
	}
	if on == nil {
		on = []int{0, 1, 2, 3, 4, 5, 6}
	}
	s.entries = append(s.entries, e)
	this := &s.entries[len(s.entries)-1]
	for _, day := range on {
		again := hours{of.on(day), e.from, e.to}
		if minute, both := s.common(&Schedule{entries: []hours{again}}); both {
			n.Failf("%s is in the schedule twice; write hours that do not overlap", clock(minute))
			return
		}
		this.spans = append(this.spans, again.spans...)
	}
}

// on is the hours on a day of the week. Hours that end before they begin continue
// on the next day, those of Sunday on Monday.
func (s weekMinutes) on(day int) []weekMinutes {
	from, to := day*minutesADay+s.from, day*minutesADay+s.to
	if s.to <= s.from {
		to += minutesADay
	}
	if to <= minutesAWeek {
		return []weekMinutes{{from, to}}
	}
	return []weekMinutes{{from, minutesAWeek}, {0, to - minutesAWeek}}
}

// readDays reads mon-fri, or a list of days and ranges.
func readDays(n *strictyaml.Node) []int {
	on := []int{}
	add := func(n *strictyaml.Node) {
		for word := range strings.SplitSeq(n.Text(), ",") {
			first, last, isRange := strings.Cut(strings.TrimSpace(word), "-")
			if !isRange {
				last = first
			}
			from, to := slices.Index(days, first), slices.Index(days, last)
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

// readClock reads 8-18 or 08:00-18:30.
func readClock(n *strictyaml.Node) weekMinutes {
	text := n.Text()
	if text == "" {
		return weekMinutes{0, minutesADay}
	}
	first, last, isRange := strings.Cut(text, "-")
	from, ok1 := minuteOf(first)
	to, ok2 := minuteOf(last)
	if !isRange || !ok1 || !ok2 || from == minutesADay {
		n.Failf("hours: %q is not a range of hours; write them as 8-18 or 08:00-18:30", text)
		return weekMinutes{0, minutesADay}
	}
	if from == to {
		n.Failf("hours: %q ends when it begins; leave them out for the whole day", text)
		return weekMinutes{0, minutesADay}
	}
	return weekMinutes{from, to}
}

// minuteOf reads a time of the day, up to 24:00.
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

// Schedule is some hours of a week, or of the weeks between two dates, in the file's time zone, in local time: it
// follows the changes to and from daylight saving time.
type Schedule struct {
	Name    string
	zone    *time.Location
	entries []hours
}

// hours are an item of a schedule. The days from and to, as 2026-12-20, are both included; empty for no such bound.
type hours struct {
	spans    []weekMinutes
	from, to string
}

// common is the first minute of the week that two items share, on days that both have.
func (h *hours) common(other *hours) (first int, found bool) {
	if h.to != "" && other.from != "" && h.to < other.from || other.to != "" && h.from != "" && other.to < h.from {
		return 0, false
	}
	return common(h.spans, other.spans)
}

// common is the first minute of the week that two schedules share.
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

// weekMinutes is from one minute up to, but not including, another, counted from Monday
// 00:00.
type weekMinutes struct{ from, to int }

const (
	minutesADay  = 24 * 60
	minutesAWeek = 7 * minutesADay
)

// common is the first minute of the week that two lists of spans share.
func common(a, b []weekMinutes) (first int, found bool) {
	first = minutesAWeek
	for _, x := range a {
		for _, y := range b {
			if from := max(x.from, y.from); from < min(x.to, y.to, first) {
				first, found = from, true
			}
		}
	}
	return first, found
}

// clock is a minute of the week as text, such as "wed 12:00".
func clock(minute int) string {
	return fmt.Sprintf("%s %02d:%02d", days[minute/minutesADay], minute%minutesADay/60, minute%60)
}

var days = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}

// Contains says whether a time is within the schedule.
func (s *Schedule) Contains(t time.Time) bool {
	local := t.In(s.zone)
	day := (int(local.Weekday()) + 6) % 7 // Monday is 0
	minute := day*minutesADay + local.Hour()*60 + local.Minute()
	date := local.Format(time.DateOnly)
	return slices.ContainsFunc(s.entries, func(h hours) bool {
		return (h.from == "" || date >= h.from) && (h.to == "" || date <= h.to) &&
			slices.ContainsFunc(h.spans, func(sp weekMinutes) bool { return minute >= sp.from && minute < sp.to })
	})
}
