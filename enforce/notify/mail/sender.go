// Package mail notifies users by mail: it groups what a user is to be told, writes mails, and sends them by SMTP or
// by a program such as sendmail(8).
//
//	sender := &mail.Sender{Settings: policy.Mail, Now: time.Now, Done: record, Warn: log}
//	sender.Start()
//	err := sender.Add(message, run, cycle) // returns at once
//	unsent := sender.Close(10 * time.Second)
//
// What comes within a minute is one mail. A user gets at most `per-user` mails in an interval of the policy (`digest`);
// what is over waits for its end and is one mail then. Hosts and the fleet have limits too, since a host may make up
// users and findings. What doesn't fit is counted. What waits is lost if the program is killed.
//
// A mail is sent at most once: when the connection is lost between its end and the server's answer, it is not sent
// again. One that fails or hangs delays neither the caller nor, beyond the timeout of a try, other mails.
//
// The package neither decides what a user gets to know nor keeps a record: see enforce/notify and Sender.Done.
package mail

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Sender sends mail without delaying its caller. It is safe for concurrent use from Start until Close.
type Sender struct {
	Settings *policy.Mail
	Gather   time.Duration // for how long the first message to a user waits for others
	Now      func() time.Time
	// MayBegin, if set, is asked right before each try. Its error says that nothing may be sent any more.
	MayBegin func() error
	// Done is called once for each letter that Close doesn't return, and Warn for what is wrong besides: by several
	// goroutines.
	Done func(Letter)
	Warn func(error)
	// Pause is how long to wait before a second try; it doubles up to maxPause. 0 for 30 seconds. GiveUp is how long a
	// mail is tried; 0 for 4 hours.
	Pause, GiveUp time.Duration

	routes  []*route // to users, and to each address of `copy-to:`
	running sync.WaitGroup
	cancel  context.CancelFunc

	mu     sync.Mutex
	groups map[snapshot.Username]*group
	hour   time.Time // when counting began
	all    int       // mails in this hour
	hosts  map[snapshot.Hostname]int
}

// Letter is a mail that is due, and what became of it.
type Letter struct {
	User   snapshot.Username
	Items  []notify.UserMessage
	More   int    // items that are left out
	Digest bool   // they were collected for an interval
	Run    string // of the controller, and its cycle, for the record
	Cycle  int
	Test   bool // that mail works, by SendTest

	To   string // the address; empty if none was found
	Text string // what was sent, or was going to be
	Err  error  // nil if the mail was handed over
}

// job is a letter on its way.
type job struct {
	Letter
	id          string // of the message: the same in every try
	data        []byte // the message
	tries       int
	since, next time.Time // when it came, and when it is tried next
}

// route sends letters one after the other, and tries again what may succeed later: no address delays others.
type route struct {
	copyTo  string // where all of them go; empty for each user's address
	wake    chan struct{}
	failing bool // the server, and Warn was called for it
	pauses  int
	resume  time.Time // when the server is tried again

	// Guarded by the mutex of the Sender.
	jobs    []*job
	closing bool
}

const (
	maxPause    = 15 * time.Minute
	maxJobs     = 1000
	longestWait = time.Second // the clock may be set, and groups become due
)

// errFull is why a letter was dropped, and errEnded why a copy was lost.
var (
	errFull  = errors.New("too many mails wait to be sent: it was dropped")
	errEnded = errors.New("the run ended before the mail server took it")
)

// Start begins to send.
func (s *Sender) Start() {
	s.Pause, s.GiveUp = cmp.Or(s.Pause, 30*time.Second), cmp.Or(s.GiveUp, 4*time.Hour)
	s.groups = make(map[snapshot.Username]*group)
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	for _, to := range append([]string{""}, s.Settings.CopyTo...) {
		s.routes = append(s.routes, &route{copyTo: to, wake: make(chan struct{}, 1)})
	}
	for _, r := range s.routes {
		s.running.Go(func() { s.work(ctx, r) })
	}
}

// Send queues a letter, such as one that another Sender could not send.
func (s *Sender) Send(l Letter) { s.put(s.routes[0], newJob(l, s.Now())) }

// Close sends what waits, for as long as the timeout lets it, and returns what was not sent.
func (s *Sender) Close(timeout time.Duration) (unsent []Letter) {
	timer := time.AfterFunc(timeout, s.cancel)
	defer timer.Stop()
	s.end(s.routes[0])
	s.running.Wait()
	s.cancel()
	for _, r := range s.routes {
		for _, j := range r.jobs {
			if r.copyTo == "" {
				unsent = append(unsent, j.Letter)
			} else {
				j.Err = errEnded
				s.report(r, j)
			}
		}
	}
	return unsent
}

func newJob(l Letter, now time.Time) *job {
	return &job{Letter: l, since: now, next: now, id: "genv." + strings.ToLower(rand.Text())}
}

// put adds a job. One that doesn't fit is dropped.
func (s *Sender) put(r *route, j *job) {
	s.mu.Lock()
	full := len(r.jobs) >= maxJobs
	if !full {
		r.jobs = append(r.jobs, j)
	}
	s.mu.Unlock()
	if full {
		j.To, j.Err = r.copyTo, errFull
		s.report(r, j)
	}
	r.signal()
}

func (r *route) signal() {
	select {
	case r.wake <- struct{}{}:
	default: // it has yet to notice the last change
	}
}

// end has a route try what was not tried yet, and end.
func (s *Sender) end(r *route) {
	s.mu.Lock()
	r.closing = true
	s.mu.Unlock()
	r.signal()
}

func (s *Sender) work(ctx context.Context, r *route) {
	for {
		j, closing := s.next(r)
		switch {
		case j != nil && ctx.Err() == nil:
			s.try(ctx, r, j)
			continue
		case !closing:
			select {
			case <-r.wake:
			case <-time.After(longestWait):
			}
			continue
		case r.copyTo == "":
			for _, c := range s.routes[1:] { // what was sent until now is copied, too
				s.end(c)
			}
		}
		return
	}
}

// next is the job to try now; nil for none. At the end of a run it is one that was not tried yet, unless the server
// fails.
func (s *Sender) next(r *route) (next *job, closing bool) {
	now := s.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.copyTo == "" {
		for _, l := range s.due(now, r.closing) {
			r.jobs = append(r.jobs, newJob(l, now))
		}
	}
	for _, j := range r.jobs {
		switch left := max(j.next.Sub(now), r.resume.Sub(now)); {
		case r.closing && (j.tries > 0 || r.failing):
		case r.closing, left <= 0, left > 2*maxPause: // or the clock was set back
			return j, r.closing
		}
	}
	return nil, r.closing
}

// try tries to send a letter, once.
func (s *Sender) try(ctx context.Context, r *route, j *job) {
	now := s.Now()
	j.Err = s.deliver(ctx, r, j, now)
	if ctx.Err() == nil { // the end of a run is not a failure of the server
		s.learn(r, j.Err, now)
	}
	if j.Err != nil && !failureOf(j.Err).final {
		j.tries++
		j.next = now.Add(pause(s.Pause, j.tries))
		if ctx.Err() != nil || now.Sub(j.since) < s.GiveUp {
			j.To, j.Text, j.Err = "", "", nil
			return // it waits
		}
		j.Err = fmt.Errorf("given up after %d tries: %w", j.tries, j.Err)
	}
	s.mu.Lock()
	r.jobs = slices.DeleteFunc(r.jobs, func(other *job) bool { return other == j })
	s.mu.Unlock()
	if j.Err == nil && r.copyTo == "" {
		for _, c := range s.routes[1:] {
			if !strings.EqualFold(c.copyTo, j.To) {
				s.put(c, copyOf(j, now))
			}
		}
	}
	s.report(r, j)
}

// copyOf is a copy of what a user was sent.
func copyOf(sent *job, now time.Time) *job {
	j := newJob(Letter{User: sent.User}, now)
	j.data = sent.data
	return j
}

// report passes on what became of a letter. Of copies only failures matter.
func (s *Sender) report(r *route, j *job) {
	switch {
	case r.copyTo == "":
		s.Done(j.Letter)
	case j.Err != nil:
		s.Warn(fmt.Errorf("the copy to %s of a mail to %s was not sent: %w", r.copyTo, text.Shown(string(j.User)), j.Err))
	}
}

// deliver sends a letter, and notes the address and the text.
func (s *Sender) deliver(ctx context.Context, r *route, j *job, now time.Time) (err error) {
	if j.To = r.copyTo; r.copyTo == "" {
		if j.To, err = addressOf(s.Settings, j.User); err == nil {
			err = j.write(s.Settings, now)
		}
	}
	if err == nil && s.MayBegin != nil {
		err = s.MayBegin()
	}
	if err != nil {
		return failure{err, true, false}
	}
	return send(ctx, s.Settings, j.To, j.data)
}

// pause is how long to wait after so many tries.
func pause(first time.Duration, tries int) time.Duration {
	for ; tries > 1 && first < maxPause; tries-- {
		first *= 2
	}
	return min(first, maxPause)
}

// learn remembers whether the server can be reached, so that not every letter waits for one that can't.
func (s *Sender) learn(r *route, err error, now time.Time) {
	switch {
	case err == nil:
		r.failing, r.pauses, r.resume = false, 0, time.Time{}
	case failureOf(err).server:
		r.pauses++
		r.resume = now.Add(pause(s.Pause, r.pauses))
		if !r.failing {
			r.failing = true
			prefix := ""
			if r.copyTo != "" {
				prefix = "copies to " + r.copyTo + ": "
			}
			s.Warn(fmt.Errorf("%smail waits, and is tried again: %w", prefix, err))
		}
	}
}

// failure is why a mail was not sent.
type failure struct {
	error
	final  bool // another try would not help, or might send it twice
	server bool // other mails would fail, too: the server can't be reached, or refuses the login
}

func (f failure) Unwrap() error { return f.error }

func failureOf(err error) (f failure) {
	errors.As(err, &f)
	return f
}

// SendTest sends a user a mail that says that it is a test, and a copy of it to each address of `copy-to:`, once each.
// It returns what became of them, the mail first; without the mail there are no copies. The Sender isn't started.
func (s *Sender) SendTest(ctx context.Context, user snapshot.Username) []Letter {
	now := s.Now()
	j := newJob(Letter{
		User: user, Items: []notify.UserMessage{{ID: "test", Line: notify.TestText, At: now}}, Test: true,
	}, now)
	j.Err = s.deliver(ctx, &route{}, j, now)
	results := []Letter{j.Letter}
	if j.Err != nil {
		return results
	}
	for _, to := range s.Settings.CopyTo {
		c := copyOf(j, now)
		c.Err = s.deliver(ctx, &route{copyTo: to}, c, now)
		results = append(results, c.Letter)
	}
	return results
}

// NextStep is what an administrator can do about the Err of a Letter.
func NextStep(err error) string {
	switch f := failureOf(err); {
	case err == nil:
		return ""
	case errors.Is(err, ErrOptedOut):
		return "name another user"
	case errors.Is(err, errNoAddress):
		return "name the user under `addresses:` of `mail:`, or add a `template:`"
	case f.server:
		return "check `smtp:`, `tls:`, `ca-file:` and `password-file:` of `mail:`, and that this machine " +
			"reaches the server"
	case f.final:
		return "correct what was refused: a controller doesn't send such a mail again"
	}
	return "try again later: a controller does so for 4 hours"
}
