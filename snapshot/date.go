package snapshot

import (
	"fmt"
	"time"
)

// dateLayout is how 1.4.3 writes dates: the host's local time, without a zone.
const dateLayout = "02/01/2006 15:04:05"

// Date is a moment on a host's own wall clock, to the second and without a
// zone, as state files hold it. Dates of one host can be compared; between
// hosts the comparison is as good as their clocks and zones agree.
type Date struct{ wall time.Time }

// ParseDate reads "DD/MM/YYYY HH:MM:SS".
func ParseDate(text string) (Date, error) {
	t, err := time.ParseInLocation(dateLayout, text, time.UTC)
	// time.Parse lets fractions of a second and single digits pass.
	if err != nil || t.Format(dateLayout) != text {
		return Date{}, fmt.Errorf("%q is no date of the form DD/MM/YYYY HH:MM:SS", text)
	}
	return Date{wall: t}, nil
}

// DateOf is the wall clock's reading at t in t's own location.
func DateOf(t time.Time) Date {
	return Date{wall: time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)}
}

// In is the instant at which a clock in loc showed this date.
func (d Date) In(loc *time.Location) time.Time {
	w := d.wall
	return time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), 0, loc)
}

// Compare is negative if d is before e, and positive if it is after.
func (d Date) Compare(e Date) int { return d.wall.Compare(e.wall) }

// IsZero says that there is no date.
func (d Date) IsZero() bool { return d.wall.IsZero() }

// String is the date as state files hold it.
func (d Date) String() string { return d.wall.Format(dateLayout) }

// ISO is the date as YYYY-MM-DDTHH:MM:SS, without a zone, for JSON.
func (d Date) ISO() string { return d.wall.Format("2006-01-02T15:04:05") }
