// Package render prints what commands have to say: tables as text and CSV, JSON
// documents, progress, and the hosts that failed. It escapes what could harm a
// terminal or a spreadsheet.
package render

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Age is a duration in its largest unit. Clocks of hosts differ, so that
// something may seem to be of the future: that is "now" as well.
func Age(d time.Duration) string {
	units := []struct {
		name string
		size time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}}
	for _, u := range units {
		if n := int(d / u.size); n > 0 {
			return fmt.Sprintf("%s ago", Plural(n, u.name))
		}
	}
	return "now"
}

// Plural is a number with its noun, such as "1 host" or "2 hosts".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// TimeFormat is how lines are dated: local time, and sorted as they are.
const TimeFormat = time.DateTime

// Dated writes the time in front of each line. It is safe for concurrent use.
type Dated struct {
	out    io.Writer
	now    func() time.Time
	mu     sync.Mutex
	inLine bool // the last line has not ended yet
}

// NewDated dates the lines that are written to out.
func NewDated(out io.Writer, now func() time.Time) *Dated { return &Dated{out: out, now: now} }

// Write implements io.Writer. Lines that are written together go out together.
func (d *Dated) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	prefix := d.now().Local().Format(TimeFormat) + " "
	var b bytes.Buffer
	for line := range bytes.Lines(p) {
		if !d.inLine {
			b.WriteString(prefix)
		}
		b.Write(line)
		d.inLine = line[len(line)-1] != '\n'
	}
	if _, err := d.out.Write(b.Bytes()); err != nil {
		return 0, err //nolint:wrapcheck // as io.Writer
	}
	return len(p), nil
}

// minimumRoom is the least room for a text in which it is wrapped.
const minimumRoom = 20

// Wrap breaks a text between words into lines that fit into a width. The first line begins
// at an indent already, the others get one. A width of 0, as of a pipe, is not known: the text
// stays one line.
func Wrap(text string, indent, width int) string {
	room := width - indent
	if width == 0 || room < minimumRoom {
		return text
	}
	var b strings.Builder
	used := 0
	for i, word := range strings.Split(text, " ") {
		length := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+length > room:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += length
	}
	return b.String()
}
