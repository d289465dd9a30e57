// Package mail notifies users by mail: it groups messages to a user, writes mails, and sends them by SMTP or by a
// program such as sendmail(8).
//
//	sender := &mail.Sender{Settings: policy.Mail, Now: time.Now, Done: record, Warn: log}
//	sender.Start()
//	err := sender.Add(message, run, cycle) // returns at once
//	unsent := sender.Close(10 * time.Second)
//
// What comes within a minute is one mail. A user gets at most `per-user` mails in an interval of the policy (`digest`);
// what is over is one mail at its end. Hosts and the fleet have limits, since a host may make up users and findings.
//
// A mail is sent at most once: it is not sent again when the connection is lost between its end and the server's
// answer. One that fails or hangs delays other mails by the timeout of a try at most, and never the caller. What waits
// is lost if the program is killed.
package mail

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
	// Done is called once for each letter that Close doesn't return, and Warn for other problems: from any goroutine.
	Done func(Letter)
	Warn func(error)

	Pause  time.Duration // before a second try, doubled up to maxPause; 0 for 30 seconds
	GiveUp time.Duration // how long a mail is tried; 0 for 4 hours

	routes  []*route // to users, and to each address of `copy-to:`
	running sync.WaitGroup
	closing chan struct{}
	context context.Context //nolint:containedctx // of all tries
	cancel  context.CancelFunc

	mu     sync.Mutex
	groups map[snapshot.Username]*group
	hour   time.Time // when counting began
	all    int       // mails in this hour
	hosts  map[snapshot.Hostname]int
	unsent []Letter
}

// Letter is a mail that is due, and what became of it.
type Letter struct {
	User   snapshot.Username
	Items  []notify.UserMessage
	More   int    // items that are left out
	Digest bool   // they were collected for an interval
	Run    string // of the controller, for the record
	Cycle  int
	Test   bool // by SendTest

	To   string // the address; empty if none was found
	Text string // what was sent, or was going to be
	Err  error  // nil if the mail was handed over

	id   string // of the message: the same in every try
	data []byte // the message
}

// route sends letters one after the other. What may succeed later is tried again, and delays no other letter meanwhile.
type route struct {
	copyTo  string // where all of them go; empty for each user's address
	waiting int    // letters; guarded by the mutex of the Sender

	turn     sync.Mutex
	failures int       // of the server in a row; Warn was called for the first one
	last     error     // of these
	resume   time.Time // when the server is asked again
}

const (
	maxPause   = 15 * time.Minute
	maxWaiting = 1000
	checkEvery = time.Second // whether a group is due
)

var (
	errFull  = errors.New("too many mails wait to be sent: it was dropped")
	errEnded = errors.New("the run ended before the mail server took it") // why a copy was lost
)

// Start begins to send.
func (s *Sender) Start() {
	s.Pause, s.GiveUp = cmp.Or(s.Pause, 30*time.Second), cmp.Or(s.GiveUp, 4*time.Hour)
	s.groups, s.closing = make(map[snapshot.Username]*group), make(chan struct{})
	s.context, s.cancel = context.WithCancel(context.Background())
	for _, to := range append([]string{""}, s.Settings.CopyTo...) {
		s.routes = append(s.routes, &route{copyTo: to})
	}
	s.running.Go(func() {
		for s.sleep(checkEvery) {
			s.sendDue(false)
		}
	})
}

// sleep returns false at once when the Sender is closed.
func (s *Sender) sleep(d time.Duration) bool {
	select {
	case <-s.closing:
		return false
	case <-time.After(d):
		return true
	}
}

// Send queues a letter, such as one that another Sender could not send.
func (s *Sender) Send(l Letter) { s.put(s.routes[0], l) }

// Close sends what waits, for as long as the timeout lets it, and returns what was not sent.
func (s *Sender) Close(timeout time.Duration) (unsent []Letter) {
	s.sendDue(true)
	close(s.closing)
	timer := time.AfterFunc(timeout, s.cancel)
	defer timer.Stop()
	s.running.Wait()
	s.cancel()
	return s.unsent
}

func (s *Sender) sendDue(closing bool) {
	s.mu.Lock()
	letters := s.due(s.Now(), closing)
	s.mu.Unlock()
	for _, l := range letters {
		s.Send(l)
	}
}

// put queues a letter. One that doesn't fit is dropped.
func (s *Sender) put(r *route, l Letter) {
	s.mu.Lock()
	r.waiting++
	full := r.waiting > maxWaiting
	s.mu.Unlock()
	if full {
		l.To, l.Err = r.copyTo, errFull
		s.finish(r, l)
		return
	}
	s.running.Go(func() { s.work(r, l) })
}

// work sends a letter, and tries again what may succeed later.
func (s *Sender) work(r *route, l Letter) {
	begun := s.Now()
	for tries := 0; ; {
		wait, err := s.try(r, &l)
		if l.Err = err; wait == 0 {
			tries++
			wait = pause(s.Pause, tries)
		}
		switch {
		case l.Err == nil, failureOf(l.Err).final:
		case !errors.Is(l.Err, errEnded) && s.Now().Sub(begun) >= s.GiveUp:
			l.Err = fmt.Errorf("given up after %d tries: %w", tries, l.Err)
		case !errors.Is(l.Err, errEnded) && s.sleep(wait):
			continue
		default:
			l.Err = errEnded
		}
		s.finish(r, l)
		return
	}
}

// try sends a letter once, when it is its turn. A server that fails is left alone for some time: wait is for how long.
func (s *Sender) try(r *route, l *Letter) (wait time.Duration, err error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	if s.context.Err() != nil {
		return 0, errEnded
	}
	if wait = r.resume.Sub(s.Now()); r.failures > 0 && wait > 0 {
		return wait, r.last
	}
	err = s.deliver(s.context, r.copyTo, l)
	failed := failureOf(err)
	switch {
	case err == nil:
		r.failures = 0
	case !failed.final && s.context.Err() != nil: // which is not a failure of the server
		return 0, errEnded
	case failed.server:
		r.failures++
		r.last, r.resume = err, s.Now().Add(pause(s.Pause, r.failures))
		if r.failures == 1 {
			prefix := ""
			if r.copyTo != "" {
				prefix = "copies to " + r.copyTo + ": "
			}
			s.Warn(fmt.Errorf("%smail waits, and is tried again: %w", prefix, err))
		}
	}
	return 0, err
}

// finish passes on what became of a letter. Of copies only failures matter.
func (s *Sender) finish(r *route, l Letter) {
	ended := errors.Is(l.Err, errEnded)
	s.mu.Lock()
	r.waiting--
	if ended && r.copyTo == "" {
		l.To, l.Text, l.Err = "", "", nil
		s.unsent = append(s.unsent, l)
	}
	s.mu.Unlock()
	switch {
	case r.copyTo != "" && l.Err != nil:
		user := text.Shown(string(l.User))
		s.Warn(fmt.Errorf("the copy to %s of a mail to %s was not sent: %w", r.copyTo, user, l.Err))
	case r.copyTo == "" && !ended:
		for _, c := range s.routes[1:] {
			if l.Err == nil && !strings.EqualFold(c.copyTo, l.To) {
				s.put(c, l.copied())
			}
		}
		s.Done(l)
	}
}

// copied is a copy of what a user was sent.
func (l *Letter) copied() Letter { return Letter{User: l.User, data: l.data} }

// deliver sends a letter now, and notes the address and the text.
func (s *Sender) deliver(ctx context.Context, copyTo string, l *Letter) (err error) {
	if l.To = copyTo; copyTo == "" {
		l.id = cmp.Or(l.id, "genv."+strings.ToLower(rand.Text()))
		if l.To, err = s.Settings.Address(l.User); err == nil {
			subject, body := Compose(*l, s.Settings)
			l.Text = subject + "\n" + body
			l.data, err = format(s.Settings, l.To, l.id, subject, body, s.Now())
		}
	}
	if err == nil && s.MayBegin != nil {
		err = s.MayBegin()
	}
	if err != nil {
		return failure{err, true, false}
	}
	return send(ctx, s.Settings, l.To, l.data)
}

// pause is how long to wait after so many tries.
func pause(first time.Duration, tries int) time.Duration {
	return min(first<<min(tries-1, 16), maxPause)
}

// failure is why a mail was not sent.
type failure struct {
	error
	final  bool // another try would not help, or might send it twice
	server bool // the server can't be reached, or refuses the login: other mails would fail, too
}

func (f failure) Unwrap() error { return f.error }

func failureOf(err error) (f failure) {
	errors.As(err, &f)
	return f
}

// SendTest sends a user a mail marked as a test, and then its copies, once each. The mail's result comes first.
func (s *Sender) SendTest(ctx context.Context, user snapshot.Username) []Letter {
	l := Letter{User: user, Test: true, Items: []notify.UserMessage{{ID: "test", Line: notify.TestText, At: s.Now()}}}
	l.Err = s.deliver(ctx, "", &l)
	results := []Letter{l}
	for i := 0; l.Err == nil && i < len(s.Settings.CopyTo); i++ {
		c := l.copied()
		c.Err = s.deliver(ctx, s.Settings.CopyTo[i], &c)
		results = append(results, c)
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
	case errors.Is(err, policy.ErrNoAddress):
		return "name the user under `addresses:` of `mail:`, or add a `template:`"
	case f.server:
		return "check `smtp:`, `tls:`, `ca-file:` and `password-file:` of `mail:`, and that this machine " +
			"reaches the server"
	case f.final:
		return "correct what was refused: a controller doesn't send such a mail again"
	}
	return "try again later: a controller does so for 4 hours"
}
