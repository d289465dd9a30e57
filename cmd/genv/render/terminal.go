// Package render prints tables as text and CSV, JSON documents, progress, and failed hosts. It escapes what could harm
// a terminal or a spreadsheet.
package render

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Width is the terminal's width in characters; 0 if unknown.
func Width(w io.Writer) int {
	width := 0
	if f, ok := w.(*os.File); ok {
		width, _, _ = term.GetSize(int(f.Fd())) // -1 without a terminal
	}
	return max(width, 0)
}

// Colourful follows https://no-color.org: a NO_COLOR that isn't empty turns colours off.
func Colourful(w io.Writer, getenv func(string) string) bool {
	return IsTerminal(w) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// Prompt returns a function that asks for a secret; nil without a terminal.
func Prompt(in io.Reader, out io.Writer) func(string) ([]byte, error) {
	f, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || !IsTerminal(out) {
		return nil
	}
	return func(question string) ([]byte, error) {
		fmt.Fprint(out, question)
		defer fmt.Fprintln(out)
		return term.ReadPassword(int(f.Fd()))
	}
}

// Progress is a line on a terminal about a fan-out that lasts more than a second, even if only the last host does.
type Progress struct {
	out         io.Writer
	terminal    bool
	mu          sync.Mutex
	timer       *time.Timer // nil outside of a fan-out
	done, total int
	shown       bool
	said        time.Time // last line of Waiting
}

// NewProgress shows progress on a terminal. Elsewhere only Waiting prints.
func NewProgress(out io.Writer) *Progress { return &Progress{out: out, terminal: IsTerminal(out)} }

// Update is called as hosts answer, concurrently and in any order; with done 0 at the start of a fan-out.
func (p *Progress) Update(done, total int) {
	if !p.terminal {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if done == 0 {
		p.stop()
		p.done, p.total = 0, total
		p.timer = time.AfterFunc(time.Second, p.show)
	}
	p.done = max(p.done, done)
	if p.done == p.total {
		p.stop()
	} else if p.shown {
		p.draw()
	}
}

// Note shows a line until the next fan-out or End.
func (p *Progress) Note(line string) {
	if !p.terminal {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
	if width := Width(p.out); width > minimumRoom {
		line = text.Cut(line, width-1)
	}
	fmt.Fprint(p.out, "\r\x1b[K"+line)
	p.shown = true
}

// Waiting shows a Note on a terminal, and elsewhere a line a minute.
func (p *Progress) Waiting(line string, now time.Time) {
	if p.terminal {
		p.Note(line)
	} else if now.Sub(p.said) >= time.Minute {
		p.said = now
		fmt.Fprintln(p.out, text.PrintableLines(line))
	}
}

func (p *Progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.draw()
	}
}

// draw and stop need the lock.
func (p *Progress) draw() {
	fmt.Fprintf(p.out, "\r\x1b[K%d of %s …", p.done, text.Plural(p.total, "host"))
	p.shown = true
}

// End removes the line.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
}

func (p *Progress) stop() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = false
	}
}

// Age is a duration in its largest unit. Clocks of hosts differ: a time in the future is "now".
func Age(d time.Duration) string {
	units := []struct {
		name string
		size time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}}
	for _, u := range units {
		if n := int(d / u.size); n > 0 {
			return fmt.Sprintf("%s ago", text.Plural(n, u.name))
		}
	}
	return "now"
}

// TimeFormat dates lines. It is local and sortable.
const TimeFormat = time.DateTime

// Dated puts the time in front of each line. It is safe for concurrent use.
type Dated struct {
	out    io.Writer
	now    func() time.Time
	mu     sync.Mutex
	inLine bool // the last line has not ended
}

// InJournal reports whether out is systemd's journal, which dates lines itself (systemd.exec(5)).
func InJournal(out io.Writer, getenv func(string) string) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	var about unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &about)
	return err == nil && getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", about.Dev, about.Ino)
}

// DatedLog is NewDated, except for the journal.
func DatedLog(out io.Writer, now func() time.Time, getenv func(string) string) io.Writer {
	if InJournal(out, getenv) {
		return out
	}
	return NewDated(out, now)
}

// NewDated returns a Dated for out.
func NewDated(out io.Writer, now func() time.Time) *Dated { return &Dated{out: out, now: now} }

// Write implements io.Writer. It forwards each call in one write.
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

const minimumRoom = 20 // for wrapped text

// Wrap breaks a text between words. The first line already starts at the indent. A width of 0, as of a pipe, is
// unknown: the text stays one line.
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
