package usage

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// dbWriter writes what a Recorder counts. It is used by one goroutine alone.
type dbWriter struct {
	*Recorder
	store   Store  // nil while it can't be opened
	entry   Entry  // what wasn't given to the store yet
	pending *Entry // what was given to it, and may have been kept; nil for none
	paused  bool   // another controller leads since the last look
	said    string // why, if it was said
	dropped bool   // something is missing since then
	tidied  time.Time
}

// tidyEvery is the time between two looks for what is too old.
const tidyEvery = time.Hour

const writeTimeout = 5 * time.Minute

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
		_ = w.store.Close() // what Add returned for is kept
		w.store = nil
	}
}

// write writes what was counted. ended says that nothing follows.
func (w *dbWriter) write(ended bool) {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	taken := w.take()
	w.entry.Sums.Merge(taken.sums)
	if taken.begun == 0 && len(w.entry.Sums) == 0 && w.pending == nil {
		return
	}
	if taken.begun != 0 {
		w.paused = taken.paused
	}
	w.entry.Mark = Mark{Until: taken.until, Ended: ended || w.paused}
	if w.entry.Since == 0 {
		w.entry.Since = cmp.Or(taken.begun, taken.until)
	}
	err := w.add(ctx)
	if errors.Is(err, ErrDamaged) && w.options.Replace != nil {
		w.closeStore()
		if failed := w.options.Replace(err); failed != nil {
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
	if w.paused { // another controller writes now
		w.closeStore()
		w.entry.Since = 0
	}
}

// add adds what wasn't written: first what perhaps was.
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

// put adds an entry. If there is no room, some is made first.
func (w *dbWriter) put(ctx context.Context, e *Entry) error {
	err := w.store.Add(ctx, e)
	if !errors.Is(err, ErrFull) {
		return err
	}
	w.tidied = time.Time{}
	w.tidy(ctx)
	return w.store.Add(ctx, e)
}

// open opens the store, and notes for which time it has nothing.
func (w *dbWriter) open(ctx context.Context) error {
	if w.store != nil {
		return nil
	}
	opened, err := w.options.Open()
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
		w.options.Log.Warn().Msgf("the last run ended without writing what it had counted last: the usage database "+
			"has nothing of up to a minute before its end, and of the time until now: since %s",
			time.Unix(last.Until, 0).In(w.options.In).Format(time.DateTime))
	}
	return nil
}

// failed says that nothing could be written, and keeps what waits within its bounds.
func (w *dbWriter) failed(err error, ended bool) {
	if text := err.Error(); text != w.said || ended {
		w.said = text
		next := "it is tried again, and what is counted meanwhile waits"
		if ended {
			next = "what was counted last is missing in it"
		}
		w.options.Log.Warn().Err(err).Msg("the usage database can't be written: " + next)
	}
	waiting := 0
	if w.pending != nil {
		waiting = len(w.pending.Sums)
	}
	for len(w.entry.Sums)+waiting > w.options.MaxWaiting {
		hour, ok := w.entry.Sums.DropOldestHour()
		if !ok {
			return
		}
		w.dropped = true
		w.entry.Gaps = append(w.entry.Gaps, Gap{Since: hour, Until: hour + 3600})
		w.options.Log.Warn().Msgf("too much usage waits to be written: the hour from %s is missing in the usage "+
			"database", time.Unix(hour, 0).In(w.options.In).Format(time.DateTime))
	}
}

// written says, after a failure, that it works again.
func (w *dbWriter) written() {
	if w.said == "" {
		return
	}
	result := "nothing is missing"
	if w.dropped {
		result = "some hours are missing"
	}
	w.options.Log.Warn().Msg("the usage database is written again: " + result)
	w.said, w.dropped = "", false
}

func (w *dbWriter) tidy(ctx context.Context) {
	now := w.options.Now()
	if since := now.Sub(w.tidied); since >= 0 && since < tidyEvery {
		return
	}
	w.tidied = now
	early, err := w.store.Tidy(ctx, now)
	if err != nil {
		early = fmt.Sprintf("what is too old could not be removed: %v", err)
	}
	if early != "" {
		w.options.Log.Warn().Msg("usage database: " + early)
	}
}
