package watch

import (
	"errors"
	"io/fs"

	"github.com/seed-3119e985/genv/snapshot"
)

// OpenLogReader reads what is new in the file.
type OpenLogReader struct {
	dir   string
	epoch string
	last  uint64
}

// NewOpenLogReader begins after what is in the file now.
func NewOpenLogReader(dir string) *OpenLogReader {
	r := &OpenLogReader{dir: dir}
	if c, err := openLogFile.Read(dir); err == nil {
		r.epoch, r.last = c.Epoch, c.Last
	}
	return r
}

// Next returns the PIDs of those who opened a device since the call before, 0 for one that is
// not known. The error is why the file says nothing: it can't be read, or others than root
// could have written it.
func (r *OpenLogReader) Next() ([]snapshot.PID, error) {
	c, err := openLogFile.Read(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	since := r.last
	if c.Epoch != r.epoch {
		since = 0
	}
	r.epoch, r.last = c.Epoch, c.Last
	switch n := uint64(len(c.PIDs)); {
	case c.Last <= since:
		return nil, nil
	case c.Last-since > n:
		return append(c.PIDs, 0), nil
	default:
		return c.PIDs[n-(c.Last-since):], nil
	}
}
