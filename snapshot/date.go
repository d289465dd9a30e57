package snapshot

import (
	"cmp"
	"fmt"
	"time"
)

// dateLayout is how 1.4.3 writes dates: the host's local time, without a zone.
const dateLayout = "02/01/2006 15:04:05"

// Date is a time on a host's own wall clock, in whole seconds and without a zone, as in the state files. The zero Date
// means that there is none.
type Date struct {
	// second counts from the beginning of year 1: a time.Time would be three times as large, with a pointer.
	second int64
}

const yearOne = -62135596800

// dateAt is the date that a wall clock in UTC shows at t.
func dateAt(t time.Time) Date { return Date{second: t.Unix() - yearOne} }

// wall is the time at which a wall clock in UTC shows the date.
func (d Date) wall() time.Time { return time.Unix(d.second+yearOne, 0).UTC() }

// ParseDate reads "DD/MM/YYYY HH:MM:SS".
func ParseDate(text string) (Date, error) {
	t, err := time.ParseInLocation(dateLayout, text, time.UTC)
	// time.Parse accepts fractions of a second and single digits.
	if err != nil || t.Format(dateLayout) != text {
		return Date{}, fmt.Errorf("%q is not a date of the form DD/MM/YYYY HH:MM:SS", text)
	}
	return dateAt(t), nil
}

// DateOf is the date at t on a wall clock in t's location.
func DateOf(t time.Time) Date {
	return dateAt(time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC))
}

// In is the time at which a wall clock in loc shows this date.
func (d Date) In(loc *time.Location) time.Time {
	w := d.wall()
	return time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), 0, loc)
}

// Compare is negative if d is before e, and positive if it is after.
func (d Date) Compare(e Date) int { return cmp.Compare(d.second, e.second) }

// IsZero says whether there is no date.
func (d Date) IsZero() bool { return d.second == 0 }

// String is the date as in the state files.
func (d Date) String() string { return d.wall().Format(dateLayout) }

// ISO is the date as YYYY-MM-DDTHH:MM:SS, without a zone, for JSON.
func (d Date) ISO() string { return d.wall().Format("2006-01-02T15:04:05") }

// MarshalText is the date as in the state files.
func (d Date) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a date with ParseDate.
func (d *Date) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDate(string(text))
	return err
}
