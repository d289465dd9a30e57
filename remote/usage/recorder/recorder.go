package recorder

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// Options are what a Recorder needs.
type Options struct {
	// Open opens the store. It is called in the background, and again after an error.
	Open func() (store.Store, error)
	Now  func() time.Time
	In   *time.Location // of the hours
	Log  zerolog.Logger
	// MaxWaiting is how many rows and sums may wait to be written; 0 for DefaultMaxWaiting.
	MaxWaiting int
}

// DefaultMaxWaiting is a day of 1,000 hosts with 8 GPUs each, in about 100 MB.
const DefaultMaxWaiting = 250_000

// writeEvery is the time between two writes, if cycles are more frequent.
const writeEvery = time.Minute

// Recorder counts what cycles show. It is a controller.Sink, and safe for concurrent use.
type Recorder struct {
	options Options
	wake    chan struct{} // something is to be written
	end     chan struct{} // closed by Close
	ended   chan struct{}

	mu      sync.Mutex
	account *usage.Account
	seen    label
	begun   int64     // the first look
	looked  time.Time // the last one
	woken   time.Time // when wake was sent last
}

// label says which cycle a cluster is of: a sink gets some cycles several times.
type label struct{ number, early int }

// Start begins to record. Call Close at the end.
func Start(options Options) *Recorder {
	if options.MaxWaiting == 0 {
		options.MaxWaiting = DefaultMaxWaiting
	}
	r := &Recorder{
		options: options, account: usage.NewAccount(options.In),
		wake: make(chan struct{}, 1), end: make(chan struct{}), ended: make(chan struct{}),
	}
	go newWriter(r).run()
	return r
}

// Configure sets the time between two cycles. Nothing is known about a time much longer than
// that without one.
func (r *Recorder) Configure(interval time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.account.MaxGap = max(2*time.Minute, 4*interval)
}

// Consume implements controller.Sink.
func (r *Recorder) Consume(cycle *controller.Cycle, events []enforce.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.options.Now()
	at := label{cycle.Number, cycle.Early}
	if r.isNew(at) && !cycle.Stopped && len(cycle.Cluster.Hosts) > 0 {
		r.seen, r.looked = at, now
		if r.begun == 0 {
			r.begun, r.woken = now.Unix(), now
		}
		r.account.Look(now, cycle.Cluster)
	}
	r.account.Count(now, events)
	if since := now.Sub(r.woken); r.begun != 0 && (since >= writeEvery || since < 0) {
		r.woken = now
		select {
		case r.wake <- struct{}{}:
		default: // it is busy, and will be woken again
		}
	}
}

func (r *Recorder) isNew(at label) bool {
	return at.number > r.seen.number || at.number == r.seen.number && at.early > r.seen.early
}

// Show takes in a cycle that sinks didn't get, because it could not be recorded in the audit
// log.
func (r *Recorder) Show(cycle *controller.Cycle) { r.Consume(cycle, nil) }

// closeTimeout is how long Close waits for a disk or a server.
const closeTimeout = 15 * time.Second

// Close counts until now, writes what waits and ends.
func (r *Recorder) Close() {
	r.mu.Lock()
	if r.begun != 0 {
		r.looked = r.options.Now()
		r.account.Settle(r.looked)
	}
	r.mu.Unlock()
	close(r.end)
	select {
	case <-r.ended:
	case <-time.After(closeTimeout):
		r.options.Log.Warn().Msg("the usage history could not be written before the end: what was counted last is missing in it")
	}
}

// take returns what was counted since it was called last, when the first look was, and the last
// one.
func (r *Recorder) take() (batch usage.Batch, begun, until int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.account.Take(), r.begun, r.looked.Unix()
}
