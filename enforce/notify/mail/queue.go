package mail

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	defaultPause  = 30 * time.Second
	maxPause      = 15 * time.Minute
	defaultGiveUp = 4 * time.Hour
	queueLength   = 1000
	longestWait   = time.Second // the clock may be set, and groups become due
)

// errFull is why a letter was dropped, and errEnded why a copy was lost.
var (
	errFull  = errors.New("too many mails wait to be sent: it was dropped")
	errEnded = errors.New("the run ended before the mail server took it")
)

// job is a letter and how often it was tried.
type job struct {
	letter Letter
	data   []byte // of a copy: what the user was sent
	tries  int
	since  time.Time // when it came
	next   time.Time // when it is tried next
	id     string    // of the message: the same in every try
}

func newJob(l Letter, now time.Time) *job {
	return &job{letter: l, since: now, next: now, id: "genv." + strings.ToLower(rand.Text())}
}

// queue sends letters one after the other, and tries again what may succeed later.
type queue struct {
	options Options
	copyTo  string                                     // where all of them go; empty for each user's address
	due     func(now time.Time, closing bool) []Letter // nil for none
	sent    func(r *Result, data []byte)               // nil for nothing
	wake    chan struct{}                              // there is something new
	done    chan struct{}                              // closed when the worker has ended
	failing bool                                       // the server, and Warn was called for it
	pauses  int
	resume  time.Time // when the server is tried again

	mu      sync.Mutex
	jobs    []*job
	closing bool
}

func newQueue(o Options) *queue {
	return &queue{options: o, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// put adds a job. One that doesn't fit is dropped.
func (q *queue) put(j *job) {
	q.mu.Lock()
	full := len(q.jobs) >= queueLength
	if !full {
		q.jobs = append(q.jobs, j)
	}
	q.mu.Unlock()
	if full {
		q.report(Result{Letter: j.letter, To: q.copyTo, Err: errFull})
	}
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default: // it has yet to notice the last change
	}
}

// end has the worker try what was not tried yet, and end.
func (q *queue) end() {
	q.mu.Lock()
	q.closing = true
	q.mu.Unlock()
	q.signal()
}

func (q *queue) finish() {
	q.end()
	<-q.done
}

func (q *queue) work(ctx context.Context) {
	defer close(q.done)
	timer := time.NewTicker(longestWait)
	defer timer.Stop()
	for {
		j, closing := q.next()
		switch {
		case j != nil && (ctx.Err() == nil || !closing):
			q.try(ctx, j)
		case closing:
			return
		default:
			select {
			case <-q.wake:
			case <-timer.C:
			}
		}
	}
}

// next is the job to try now; nil for none. At the end of a run it is one that was not tried yet, unless the server
// fails.
func (q *queue) next() (next *job, closing bool) {
	now := q.options.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.due != nil {
		for _, l := range q.due(now, q.closing) {
			q.jobs = append(q.jobs, newJob(l, now))
		}
	}
	for _, j := range q.jobs {
		at := j.next
		if at.Before(q.resume) {
			at = q.resume
		}
		switch left := at.Sub(now); {
		case q.closing && (j.tries > 0 || q.failing):
		case q.closing, left <= 0, left > 2*maxPause: // or the clock was set back
			return j, q.closing
		}
	}
	return nil, q.closing
}

// try tries to send a letter, once.
func (q *queue) try(ctx context.Context, j *job) {
	now := q.options.Now()
	r, data := q.deliver(ctx, j, now)
	if ctx.Err() == nil { // the end of a run is not a failure of the server
		q.learn(r.Err, now)
	}
	if r.Err != nil && !isFinal(r.Err) {
		j.tries++
		j.next = now.Add(pause(q.options.Pause, j.tries))
		if ctx.Err() != nil || now.Sub(j.since) < q.giveUp() {
			return // it stays in the queue
		}
		r.Err = fmt.Errorf("given up after %d tries: %w", j.tries, r.Err)
	}
	q.mu.Lock()
	q.jobs = slices.DeleteFunc(q.jobs, func(other *job) bool { return other == j })
	q.mu.Unlock()
	if r.Err == nil && q.sent != nil {
		q.sent(&r, data)
	}
	q.report(r)
}

func (q *queue) giveUp() time.Duration {
	if q.options.GiveUp == 0 {
		return defaultGiveUp
	}
	return q.options.GiveUp
}

// report passes on what became of a letter. Of copies only failures matter.
func (q *queue) report(r Result) {
	switch {
	case q.copyTo == "":
		q.options.Done(r)
	case r.Err != nil:
		q.options.Warn(notCopied(r.Letter, q.copyTo, r.Err))
	}
}

func notCopied(l Letter, to string, err error) error {
	return fmt.Errorf("the copy to %s of a mail to %s was not sent: %w", to, text.Shown(string(l.User)), err)
}

// copyTo passes on what was sent to a user, unless that went to the same address.
func copyTo(copies []*queue, sent *Result, data []byte) {
	for _, c := range copies {
		if !strings.EqualFold(c.copyTo, sent.To) {
			j := newJob(Letter{User: sent.User}, c.options.Now())
			j.data = data
			c.put(j)
		}
	}
}

// deliver sends a letter, and returns what became of it and the message.
func (q *queue) deliver(ctx context.Context, j *job, now time.Time) (r Result, data []byte) {
	r, data = Result{Letter: j.letter, To: q.copyTo}, j.data
	if data == nil {
		if r.To, r.Err = addressOf(q.options.Settings, j.letter.User); r.Err == nil {
			data, r.Text, r.Err = write(q.options.Settings, j, r.To, now)
		}
	}
	if r.Err == nil && q.options.MayBegin != nil {
		r.Err = finally(q.options.MayBegin())
	}
	if r.Err == nil {
		r.Err = send(ctx, q.options.Settings, r.To, data)
	}
	return r, data
}

// pause is how long to wait after so many tries.
func pause(first time.Duration, tries int) time.Duration {
	if first == 0 {
		first = defaultPause
	}
	for ; tries > 1 && first < maxPause; tries-- {
		first *= 2
	}
	return min(first, maxPause)
}

// learn remembers whether the server can be reached, so that not every letter waits for one that can't.
func (q *queue) learn(err error, now time.Time) {
	var server *serverError
	switch {
	case err == nil:
		q.failing, q.pauses, q.resume = false, 0, time.Time{}
	case errors.As(err, &server):
		q.pauses++
		q.resume = now.Add(pause(q.options.Pause, q.pauses))
		if !q.failing {
			q.failing = true
			q.options.Warn(fmt.Errorf("%smail waits, and is tried again: %w", q.prefix(), err))
		}
	}
}

func (q *queue) prefix() string {
	if q.copyTo == "" {
		return ""
	}
	return "copies to " + q.copyTo + ": "
}

// finalError is an error after which another try would not help, or might send a mail twice.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func finally(err error) error {
	if err == nil {
		return nil
	}
	return finalError{err}
}

func isFinal(err error) bool {
	var final finalError
	return errors.As(err, &final)
}

// serverError is an error that other mails would have, too: the server can't be reached or refuses the login.
type serverError struct{ error }

func (e *serverError) Unwrap() error { return e.error }
