package render

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// IsTerminal says whether what is written there is seen on a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Width is the width of the terminal in characters; 0 if what is written there isn't seen on
// one, or if it doesn't say.
func Width(w io.Writer) int {
	if !IsTerminal(w) {
		return 0
	}
	width, _, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return width
}

// Colourful follows https://no-color.org: any NO_COLOR that is not empty says no.
func Colourful(w io.Writer, getenv func(string) string) bool {
	return IsTerminal(w) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// Prompt asks for a secret on the terminal; nil where there is none.
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

// progressDelay is how long a fan-out runs before it shows progress.
const progressDelay = time.Second

// Progress is a line on stderr that says how far a fan-out has come. It is
// shown only on a terminal, and only when the fan-out lasts: also when all but
// the last host answered at once, since that is the one people wait for.
type Progress struct {
	out         io.Writer
	mu          sync.Mutex
	timer       *time.Timer // runs while a fan-out does
	done, total int
	shown       bool
}

// NewProgress shows progress on a terminal; elsewhere it shows nothing.
func NewProgress(out io.Writer) *Progress {
	if !IsTerminal(out) {
		return &Progress{}
	}
	return &Progress{out: out}
}

// Update is called as hosts answer, from many goroutines and in any order; with
// none done when a fan-out begins.
func (p *Progress) Update(done, total int) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if done == 0 {
		p.stop()
		p.done, p.total = 0, total
		p.timer = time.AfterFunc(progressDelay, p.show)
	}
	p.done = max(p.done, done)
	if p.done == p.total {
		p.stop()
	} else if p.shown {
		p.draw()
	}
}

// Note shows a line until the next fan-out, or until the end.
func (p *Progress) Note(line string) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
	fmt.Fprint(p.out, "\r\x1b[K"+line)
	p.shown = true
}

// show is the line's first appearance, once the fan-out has lasted.
func (p *Progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.draw()
	}
}

// draw is called with the lock held.
func (p *Progress) draw() {
	fmt.Fprintf(p.out, "\r\x1b[K%d of %s …", p.done, Plural(p.total, "host"))
	p.shown = true
}

// End removes the line, if it is shown.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
}

// stop is called with the lock held.
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
