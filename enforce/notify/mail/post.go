// Package mail notifies users by mail: it decides which mails are due,
// writes them, and sends them by a program such as sendmail(8) or by SMTP.
//
//	var memory mail.Backlog
//	memory.Add(user, finding, rules, now)       // pure
//	for _, letter := range memory.Due(rules, now) {
//		post.Send(letter)                       // returns at once
//	}
//	unsent := post.Close(10 * time.Second)
//
// The first mail about a matter, which is a rule on a host, leaves within a minute.
// What follows within the hour is collected in one digest. Users, hosts and the fleet
// have limits, since a host may make up users and findings; what is over a limit waits
// for the digest, and what doesn't fit into that is counted.
//
// Administrators get copies of what was sent (copy.go). A copy that fails or hangs delays no mail
// to a user.
//
// A mail is sent at most once: when the connection is lost between its end and the
// server's answer, it is not sent again.
//
// The package neither decides what a user gets to know nor keeps a record: see
// enforce/notify and Options.Done.
package mail

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Options are how a Post works.
type Options struct {
	Settings *policy.Mail
	Now      func() time.Time
	// Done is called once for each letter that Close doesn't return; by several goroutines.
	Done func(Result)
	// Warn is called for what is wrong but keeps no mail from being sent, and when a
	// server begins to fail; by several goroutines.
	Warn func(error)
	// Pause is how long to wait before a second try; it doubles up to maxPause. 0 for 30
	// seconds. GiveUp is how long a mail is tried; 0 for 4 hours.
	Pause, GiveUp time.Duration
}

// Result is what became of a letter.
type Result struct {
	Letter
	To   string // the address; empty if none was found
	Text string // what was sent, or was going to be
	Err  error  // nil if the mail was handed over
}

const (
	defaultPause  = 30 * time.Second
	maxPause      = 15 * time.Minute
	defaultGiveUp = 4 * time.Hour
	// queueLength is how many letters wait at most.
	queueLength = 1000
)

// ErrFull is why a letter was dropped.
var ErrFull = errors.New("too many mails wait to be sent: it was dropped")

// Post sends letters, one after the other, without delaying its caller. It is safe for concurrent use until Close.
type Post struct {
	options Options
	send    func(ctx context.Context, to string, data []byte) error
	wake    chan struct{} // there is something new for the worker
	cancel  context.CancelFunc
	running sync.WaitGroup
	copyTo  string // of a Post of copies: where all of them go
	copies  []*Post

	mu      sync.Mutex
	waiting []*job
	closing bool

	failing bool      // the server, and Warn was called for it
	resume  time.Time // when the server is tried again
	pauses  int
}

// NewPost starts a Post, which must be closed.
func NewPost(o Options) *Post {
	if o.Pause == 0 {
		o.Pause = defaultPause
	}
	if o.GiveUp == 0 {
		o.GiveUp = defaultGiveUp
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := newPost(o)
	p.cancel = cancel
	for _, to := range o.Settings.CopyTo {
		copies := newCopies(o, to)
		copies.running.Go(func() { copies.work(ctx) })
		p.copies = append(p.copies, copies)
	}
	p.running.Go(func() { p.work(ctx) })
	return p
}

// newPost is a Post that doesn't work yet.
func newPost(o Options) *Post {
	p := &Post{options: o, wake: make(chan struct{}, 1)}
	if o.Settings.Sendmail != "" {
		p.send = sendmail{o.Settings}.send
	} else {
		p.send = server{o.Settings, helloName()}.send
	}
	return p
}

// helloName is the name of this machine as SMTP wants it.
func helloName() string {
	name, err := os.Hostname()
	if err != nil || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "localhost"
	}
	return name
}

// Send queues a letter, and returns at once. One that doesn't fit is dropped, and Done
// is called for it.
func (p *Post) Send(l Letter) {
	j := newJob(l, p.options.Now())
	full := false
	p.change(func() {
		if full = len(p.waiting) >= queueLength; !full {
			p.waiting = append(p.waiting, j)
		}
	})
	if full {
		p.options.Done(Result{Letter: l, Err: ErrFull})
	}
}

// change changes what the worker looks at next.
func (p *Post) change(f func()) {
	p.mu.Lock()
	f()
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default: // it has yet to notice the last change
	}
}

// Close sends what was not tried yet, for as long as the timeout lets it, and returns
// what was not sent.
func (p *Post) Close(timeout time.Duration) []Letter {
	timer := time.AfterFunc(timeout, p.cancel)
	defer timer.Stop()
	unsent := p.finish()
	for _, c := range p.copies { // side by side
		c.change(func() { c.closing = true })
	}
	for _, c := range p.copies {
		for _, l := range c.finish() {
			p.options.Warn(notCopied(l, c.copyTo, errEnded))
		}
	}
	p.cancel()
	return unsent
}

// finish ends the worker, and returns what it did not send.
func (p *Post) finish() (unsent []Letter) {
	p.change(func() { p.closing = true })
	p.running.Wait()
	for _, j := range p.waiting {
		unsent = append(unsent, j.letter)
	}
	return unsent
}

func (p *Post) work(ctx context.Context) {
	for {
		j, wait, closing := p.next()
		switch {
		case closing:
			p.tryNew(ctx)
			return
		case j != nil:
			p.try(ctx, j)
		default:
			timer := time.NewTimer(wait)
			select {
			case <-p.wake:
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// try tries to send a letter, once.
func (p *Post) try(ctx context.Context, j *job) {
	now := p.options.Now()
	r, data := p.deliver(ctx, j, now)
	if ctx.Err() == nil { // the end of a run is not a failure of the server
		p.learn(r.Err, now)
	}
	if r.Err != nil && !isFinal(r.Err) {
		j.tries++
		j.next = now.Add(p.pause(j.tries))
		if ctx.Err() != nil || now.Sub(j.since) < p.options.GiveUp {
			return // it stays in the queue
		}
		r.Err = fmt.Errorf("given up after %d tries: %w", j.tries, r.Err)
	}
	p.remove(j)
	if r.Err == nil {
		p.copy(&r, data)
	}
	p.options.Done(r)
}

// deliver sends a letter, and returns what became of it and the message.
func (p *Post) deliver(ctx context.Context, j *job, now time.Time) (Result, []byte) {
	r, data := Result{Letter: j.letter, To: p.copyTo}, j.letter.message
	if data == nil {
		r.To, r.Err = addressOf(ctx, p.options.Settings, j.letter.User)
		if r.Err == nil {
			data, r.Text, r.Err = p.write(j, r.To, now)
		}
	}
	if r.Err == nil {
		r.Err = p.send(ctx, r.To, data)
	}
	return r, data
}

// write writes a letter as a message, and returns its text for the record.
func (p *Post) write(j *job, to string, now time.Time) (data []byte, body string, err error) {
	subject, body := Compose(j.letter, p.options.Settings)
	if j.letter.Test {
		subject = "[test] " + subject
	}
	m := mimeMessage{
		from: p.options.Settings.Sender, to: to, replyTo: p.options.Settings.ReplyTo,
		subject: subject, body: body, id: j.id, date: now,
	}
	data, err = m.bytes()
	return data, subject + "\n" + body, finally(err)
}

// Compose is the subject and the text of a letter.
func Compose(l Letter, settings *policy.Mail) (subject, body string) {
	n := notify.Notice{User: text.Shown(string(l.User)), Contact: cmp.Or(settings.Contact, settings.ReplyTo), Findings: l.Items, More: l.More, Digest: l.Digest}
	return notify.Subject(n), notify.Body(n)
}

// tryNew tries what was not tried yet.
func (p *Post) tryNew(ctx context.Context) {
	for _, j := range slices.Clone(p.waiting) {
		if j.tries == 0 && !p.failing && ctx.Err() == nil {
			p.try(ctx, j)
		}
	}
}

// finalError is an error after which another try would not help, or might send a mail
// twice.
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

// serverError is an error that other mails would have, too: the server can't be reached
// or refuses the login.
type serverError struct{ error }

func (e *serverError) Unwrap() error { return e.error }

func isServer(err error) bool {
	var server *serverError
	return errors.As(err, &server)
}

// job is a letter and how often it was tried.
type job struct {
	letter Letter
	tries  int
	since  time.Time // when it came
	next   time.Time // when it is tried next
	id     string    // of the message: the same in every try
}

func newJob(l Letter, now time.Time) *job {
	return &job{letter: l, since: now, next: now, id: "genv." + strings.ToLower(rand.Text())}
}

// longestWait is how long the worker sleeps at most: the clock may be set.
const longestWait = time.Minute

// next is the job to try now, or how long to wait for one.
func (p *Post) next() (next *job, wait time.Duration, closing bool) {
	now, wait := p.options.Now(), longestWait
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range p.waiting {
		at := j.next
		if at.Before(p.resume) {
			at = p.resume
		}
		left := at.Sub(now)
		if left <= 0 || left > 2*maxPause { // or the clock was set back
			return j, 0, p.closing
		}
		wait = min(wait, left)
	}
	return nil, wait, p.closing
}

// pause is how long to wait after so many tries.
func (p *Post) pause(tries int) time.Duration {
	pause := p.options.Pause
	for ; tries > 1 && pause < maxPause; tries-- {
		pause *= 2
	}
	return min(pause, maxPause)
}

// learn remembers whether the server can be reached, so that not every letter waits for
// one that can't.
func (p *Post) learn(err error, now time.Time) {
	if !isServer(err) {
		if err == nil {
			p.failing, p.pauses, p.resume = false, 0, time.Time{}
		}
		return
	}
	p.pauses++
	p.resume = now.Add(p.pause(p.pauses))
	if !p.failing {
		p.failing = true
		p.options.Warn(fmt.Errorf("mail waits, and is tried again: %w", err))
	}
}

// remove takes a job out of the queue.
func (p *Post) remove(done *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = slices.DeleteFunc(p.waiting, func(j *job) bool { return j == done })
}
