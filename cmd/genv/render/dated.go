package render

import (
	"bytes"
	"io"
	"sync"
	"time"
)

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
