package report

import (
	"context"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce/fairshare"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
)

// Recent is what users had in the last fairshare.Days, for rules. It is read in the background,
// and only as long as somebody asks for it. Call Close at the end.
type Recent struct {
	reader *Reader
	ctx    context.Context //nolint:containedctx // of the reads in the background, until Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu    sync.Mutex
	begun time.Time // when it was read last, or begun to be
	busy  bool
	usage fairshare.Usage
}

// recentFor is how long it is used before it is read again.
const recentFor = 10 * time.Minute

// NewRecent reads nothing yet.
func NewRecent(reader *Reader) *Recent {
	r := &Recent{reader: reader}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Usage is what is known; the zero Usage before it was read. It doesn't wait.
func (r *Recent) Usage() fairshare.Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.reader.options.Now()
	if age := now.Sub(r.begun); !r.busy && (age >= recentFor || age < 0) && r.ctx.Err() == nil {
		r.busy, r.begun = true, now
		r.work.Go(r.read)
	}
	return r.usage
}

func (r *Recent) read() {
	now := r.reader.options.Now()
	found, err := r.reader.Report(r.ctx, Query{By: ByUser, Since: now.AddDate(0, 0, -fairshare.Days).Unix(), Until: now.Unix(), FairShare: true})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy = false; err == nil { // what was known grows old by itself
		r.usage = usageOf(found.Document)
	}
}

// Close ends what is being read.
func (r *Recent) Close() {
	r.mu.Lock()
	r.cancel()
	r.mu.Unlock()
	r.work.Wait()
}

// usageOf is what a report by user says. What users had under a pseudonym may be anybody's: it counts as unknown
// for each of them.
func usageOf(d *Document) fairshare.Usage {
	since, until := d.Since, d.Until
	if d.Begun.After(since) {
		since = d.Begun
	}
	if d.Recorded.Before(until) {
		until = d.Recorded
	}
	u := fairshare.Usage{
		Until: until, Known: until.Sub(since) - time.Duration(d.Missing)*time.Second,
		Attached: make(map[snapshot.Username]fairshare.Seconds, len(d.Rows)),
	}
	nameless := int64(0)
	for i := range d.Rows {
		row := &d.Rows[i]
		if usage.IsNamed(row.Key) {
			u.Attached[snapshot.Username(row.Key)] = fairshare.Seconds{Attached: row.Attached, Unknown: row.Unknown}
			continue
		}
		u.Partial = u.Partial || row.Attached+row.Unknown > 0
		if usage.IsPseudonym(row.Key) {
			nameless += row.Attached + row.Unknown
		}
	}
	for user, had := range u.Attached {
		had.Unknown += nameless
		u.Attached[user] = had
	}
	return u
}
