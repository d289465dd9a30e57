// Package usage adds up who used which GPU for how long, from a controller's rounds, and keeps it in a Store. A Meter
// reads no clock or file.
//
//	meter := usage.NewMeter(time.Local)
//	meter.MaxGap = time.Minute
//	meter.Look(now, cluster) // each time the hosts were asked
//	meter.Count(now, events) // findings, terminations and detachments
//	sums := meter.Take()     // what has to be stored
//
// Time between looks counts as the earlier one showed, in whole seconds. A device shared by several users counts for
// each of them, and once for its host, its model and the fleet. While a host doesn't answer, or without a look for
// longer than MaxGap, time is unknown for what was attached before. Setting a clock moves no amounts, and a suspended
// machine isn't counted.
//
// A Recorder writes once a minute in the background: no cycle waits for a disk or server, and kill -9 loses a minute at
// most. What can't be written stays in memory, within bounds.
//
//	r := &usage.Recorder{Open: open, Now: time.Now, In: time.Local, Log: log}
//	r.Start()
//	sinks = append(sinks, r)
//	defer r.Close()
//
// A Reader reads reports for viewers: one at a time, with a time limit, each at most once a minute.
package usage

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
)

// DefaultMaxWaiting is a week of 1,000 hosts and 300 users, in about 50 MB.
const DefaultMaxWaiting = 250_000

const writeEvery = time.Minute

// Recorder counts what cycles show. It is a controller.Sink, safe for concurrent use.
type Recorder struct {
	Open func() (Store, error) // in the background; retried after errors
	// Replace, if set, renames a damaged store, so that Open creates a new one.
	Replace func(why error) error
	Now     func() time.Time
	In      *time.Location // of the hours
	Log     zerolog.Logger
	// Shared: several controllers write, so a standby counts nothing.
	Shared     bool
	MaxWaiting int // sums that may wait to be written; 0: DefaultMaxWaiting

	wake  chan struct{} // there is something to write
	end   chan struct{} // closed by Close
	ended chan struct{}
	fails atomic.Bool // the last write failed

	mu     sync.Mutex
	meter  *Meter
	begun  int64     // first look since the start or since standby; 0: none
	looked time.Time // last look
	paused bool      // standby since
	woken  time.Time // when wake was last sent
}

// Start starts recording. Call Close at the end.
func (r *Recorder) Start() {
	r.MaxWaiting, r.meter = cmp.Or(r.MaxWaiting, DefaultMaxWaiting), NewMeter(r.In)
	r.wake, r.end, r.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go (&dbWriter{Recorder: r, entry: Entry{Sums: make(Sums)}}).run()
}

// Configure sets the time between cycles. Much longer gaps count as unknown.
func (r *Recorder) Configure(interval time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meter.MaxGap = max(2*time.Minute, 4*interval)
}

// Consume implements controller.Sink.
func (r *Recorder) Consume(round *controller.Round, events []enforce.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Now()
	switch {
	case r.Shared && round.Standby:
		if r.begun != 0 && !r.paused { // another one leads and counts: write at once
			r.meter.Forget()
			r.paused, r.woken = true, now.Add(-writeEvery)
		}
	case !round.Stopped && len(round.Cluster.Hosts) > 0:
		r.looked, r.paused = now, false
		if r.begun == 0 {
			// write at once: if killed in its first minute, the run did not end in order
			r.begun, r.woken = now.Unix(), now.Add(-writeEvery)
		}
		r.meter.Look(now, round.Cluster)
	}
	r.meter.Count(now, events) // for a standby, those of its last term
	if since := now.Sub(r.woken); !r.woken.IsZero() && (since >= writeEvery || since < 0) {
		r.woken = now
		select {
		case r.wake <- struct{}{}:
		default: // busy; it will be woken again
		}
	}
}

const (
	closeTimeout = 15 * time.Second // for a disk or server
	closeFailing = time.Second      // for one that already failed
)

// Close counts until now, writes what is left and ends.
func (r *Recorder) Close() {
	r.mu.Lock()
	if r.begun != 0 && !r.paused {
		r.looked = r.Now()
		r.meter.Settle(r.looked)
	}
	r.mu.Unlock()
	close(r.end)
	within := closeTimeout
	if r.fails.Load() {
		within = closeFailing
	}
	select {
	case <-r.ended:
	case <-time.After(within):
		r.Log.Warn().Msg("the usage database could not be written before the end: what was counted last is " +
			"missing in it")
	}
}

// take returns the counts since the last call. begun is 0 before the first look, and after a standby's first call.
// paused: another controller leads.
func (r *Recorder) take() (sums Sums, begun, until int64, paused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun = r.begun
	if r.paused {
		r.begun = 0
	}
	return r.meter.Take(), begun, r.looked.Unix(), r.paused
}

// dbWriter writes what a Recorder counts, in one goroutine.
type dbWriter struct {
	*Recorder
	store     Store  // nil while it can't be opened
	entry     Entry  // not given to the store yet
	pending   *Entry // given to the store but maybe not stored; nil: none
	standby   bool   // another controller leads since the last look
	lastError string // logged; empty: none
	dropped   bool   // something is missing since then
	tidied    time.Time
}

const (
	tidyEvery    = time.Hour
	writeTimeout = 5 * time.Minute
)

func (w *dbWriter) run() {
	defer close(w.ended)
	for {
		select {
		case <-w.wake:
			w.write(false)
		case <-w.end:
			w.write(true)
			w.closeStore()
			return
		}
	}
}

func (w *dbWriter) closeStore() {
	if w.store != nil {
		_ = w.store.Close() // Add's data is safe
		w.store = nil
	}
}

func (w *dbWriter) write(ended bool) {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	sums, begun, until, paused := w.take()
	w.entry.Sums.Merge(sums)
	if begun == 0 && len(w.entry.Sums) == 0 && w.pending == nil {
		return
	}
	if begun != 0 {
		w.standby = paused
	}
	w.entry.Mark = Mark{Until: until, Ended: ended || w.standby}
	w.entry.Since = cmp.Or(w.entry.Since, begun, until)
	err := w.add(ctx)
	if errors.Is(err, ErrDamaged) && w.Replace != nil {
		w.closeStore()
		if failed := w.Replace(err); failed != nil {
			err = errors.Join(err, failed)
		} else {
			err = w.add(ctx)
		}
	}
	if err != nil {
		w.failed(err, ended)
		return
	}
	w.written()
	w.tidy(ctx)
	if w.standby { // another controller writes now
		w.closeStore()
		w.entry.Since = 0
	}
}

// add first repeats what may not have been stored.
func (w *dbWriter) add(ctx context.Context) error {
	if err := w.open(ctx); err != nil {
		return err
	}
	if w.pending != nil {
		if err := w.put(ctx, w.pending); err != nil {
			return err
		}
	}
	next := w.entry
	next.ID = rand.Text()
	w.pending, w.entry = &next, Entry{Sums: make(Sums), Since: next.Until}
	if err := w.put(ctx, w.pending); err != nil {
		return err
	}
	w.pending = nil
	return nil
}

func (w *dbWriter) put(ctx context.Context, e *Entry) error {
	if err := w.store.Add(ctx, e); !errors.Is(err, ErrFull) {
		return err
	}
	w.tidied = time.Time{}
	w.tidy(ctx)
	return w.store.Add(ctx, e)
}

// open opens the store, and notes the gap since its last entry.
func (w *dbWriter) open(ctx context.Context) error {
	if w.store != nil {
		return nil
	}
	opened, err := w.Open()
	if err != nil {
		return err
	}
	last, err := opened.Mark(ctx)
	if err != nil {
		_ = opened.Close() // nothing was written
		return err
	}
	w.store = opened
	if last.Until == 0 || last.Until >= w.entry.Since || w.pending != nil {
		return nil
	}
	w.entry.Gaps = append(w.entry.Gaps, Gap{Since: last.Until, Until: w.entry.Since})
	if !last.Ended {
		w.Log.Warn().Msgf("the last run ended without saving what it had counted last: the usage database "+
			"has no data from %s until now",
			time.Unix(last.Until, 0).In(w.In).Format(time.DateTime))
	}
	return nil
}

func (w *dbWriter) failed(err error, ended bool) {
	w.fails.Store(true)
	if text := err.Error(); text != w.lastError || ended {
		w.lastError = text
		next := "it is tried again; until then what is counted is kept in memory"
		if ended {
			next = "what was counted last is missing in it"
		}
		w.Log.Warn().Err(err).Msg("the usage database can't be written: " + next)
	}
	waiting := 0
	if w.pending != nil {
		waiting = len(w.pending.Sums)
	}
	for len(w.entry.Sums)+waiting > w.MaxWaiting {
		hour, ok := w.entry.Sums.DropOldestHour()
		if !ok {
			return
		}
		w.dropped = true
		w.entry.Gaps = append(w.entry.Gaps, Gap{Since: hour, Until: hour + 3600})
		w.Log.Warn().Msgf("too much usage waits to be written: the hour from %s is missing in the usage "+
			"database", time.Unix(hour, 0).In(w.In).Format(time.DateTime))
	}
}

func (w *dbWriter) written() {
	w.fails.Store(false)
	if w.lastError == "" {
		return
	}
	result := "nothing is missing"
	if w.dropped {
		result = "some hours are missing"
	}
	w.Log.Warn().Msg("the usage database is written again: " + result)
	w.lastError, w.dropped = "", false
}

func (w *dbWriter) tidy(ctx context.Context) {
	now := w.Now()
	if since := now.Sub(w.tidied); since >= 0 && since < tidyEvery {
		return
	}
	w.tidied = now
	early, err := w.store.Tidy(ctx, now)
	if err != nil {
		early = fmt.Sprintf("what is too old could not be removed: %v", err)
	}
	if early != "" {
		w.Log.Warn().Msg("usage database: " + early)
	}
}
