package watch

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

const openLogPause = 100 * time.Millisecond

// OpenLog writes OpenLogFile. It is safe for concurrent use.
type OpenLog struct {
	dir   string
	added chan struct{} // there is something to write; buffered

	mu      sync.Mutex
	content openLogContent
	pending map[snapshot.PID]bool // not yet in the file
}

// NewOpenLog returns an OpenLog in root's run folder.
func NewOpenLog(dir string) *OpenLog {
	return &OpenLog{
		dir: dir, added: make(chan struct{}, 1), pending: map[snapshot.PID]bool{},
		content: openLogContent{Schema: schema, Epoch: rand.Text(), PIDs: []snapshot.PID{}},
	}
}

// Add adds an opener of a device, 0 for unknown. It never blocks.
func (l *OpenLog) Add(pid snapshot.PID) {
	l.mu.Lock()
	if l.pending[pid] {
		l.mu.Unlock()
		return
	}
	c := &l.content
	c.Last++
	if c.PIDs = append(c.PIDs, pid); len(c.PIDs) > maxOpens {
		delete(l.pending, c.PIDs[0])
		c.PIDs = slices.Delete(c.PIDs, 0, 1)
	}
	l.pending[pid] = true
	l.mu.Unlock()
	select {
	case l.added <- struct{}{}:
	default:
	}
}

// Run writes what is added until ctx ends. It calls failed at the first of consecutive errors.
func (l *OpenLog) Run(ctx context.Context, failed func(error)) {
	works := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.added:
		}
		err := l.write()
		if err != nil && works {
			failed(err)
		}
		works = err == nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(openLogPause):
		}
	}
}

func (l *OpenLog) write() error {
	l.mu.Lock()
	now := l.content
	now.PIDs = slices.Clone(now.PIDs)
	clear(l.pending)
	l.mu.Unlock()
	return openLogFile.Write(l.dir, now)
}

// OpenLogFile is the name of the file in root's run folder.
const OpenLogFile = "guard-opens.json"

const (
	schema   = "genv.guard-opens/1"
	maxOpens = 256      // opens in the file
	maxFile  = 16 << 10 // bytes
)

type openLogContent struct {
	Schema string         `json:"schema"`
	Epoch  string         `json:"epoch"` // of the writer, which counts from 1
	Last   uint64         `json:"last"`  // the number of the last open
	PIDs   []snapshot.PID `json:"pids"`  // openers, the last one last; 0 for unknown
}

var openLogFile = folder.Note[openLogContent]{
	Name: OpenLogFile, Max: maxFile, Mode: 0o600, Invalid: snapshot.ErrInvalid, Check: (*openLogContent).check,
}

func (c *openLogContent) check() error {
	switch {
	case c.Epoch == "", len(c.PIDs) > maxOpens, uint64(len(c.PIDs)) > c.Last:
		return errors.New("its numbers are wrong")
	case slices.ContainsFunc(c.PIDs, func(pid snapshot.PID) bool { return pid < 0 }):
		return errors.New("it has a negative PID")
	}
	return folder.CheckSchema(c.Schema, schema)
}

// OpenLogReader reads new entries of OpenLogFile.
type OpenLogReader struct {
	dir   string
	epoch string
	last  uint64
}

// NewOpenLogReader begins after the present entries.
func NewOpenLogReader(dir string) *OpenLogReader {
	r := &OpenLogReader{dir: dir}
	if c, err := openLogFile.Read(dir); err == nil {
		r.epoch, r.last = c.Epoch, c.Last
	}
	return r
}

// Next returns the openers since the last call, 0 for unknown.
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

// sourcesOf omits ended processes and root's nvidia-smi, which genv runs.
func (w *Watcher) sourcesOf(pids map[snapshot.PID]bool) []source {
	var list []source
	for pid := range pids {
		if pid == 0 {
			list = append(list, source{party: unknownOpener})
			continue
		}
		stat, err := w.config.Proc.Stat(pid)
		if err != nil || stat.Gone() {
			continue
		}
		uid, err := w.config.Proc.UID(pid)
		switch {
		case errors.Is(err, proc.ErrGone): // meanwhile
		case err != nil:
			list = append(list, source{party: unknownOpener})
		case uid == 0 && w.isSMI(pid):
		default:
			list = append(list, source{party(uid), opener{pid, stat.Start}})
		}
	}
	return list
}

// isSMI says whether a process runs this machine's nvidia-smi. Only root's counts: others may run any code
// (LD_PRELOAD).
func (w *Watcher) isSMI(pid snapshot.PID) bool {
	if w.config.SMI == nil {
		return false
	}
	smi, err := os.Stat(w.config.SMI())
	if err != nil {
		return false
	}
	program, err := os.Stat(fmt.Sprintf("%s/%d/exe", cmp.Or(w.config.Proc.Root, "/proc"), pid))
	return err == nil && os.SameFile(smi, program)
}
