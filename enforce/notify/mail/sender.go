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
	"maps"
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
	// Done is called once for each letter that Close doesn't return, and Warn for other problems: from any goroutine.
	Done func(Letter)
	Warn func(error)

	Pause  time.Duration // before a second try, which grows up to maxPause; 0 for 30 seconds
	GiveUp time.Duration // how long a mail is tried; 0 for 4 hours

	users   queue
	copies  []*queue
	running sync.WaitGroup
	closing chan struct{}
	context context.Context //nolint:containedctx // of all tries
	cancel  context.CancelFunc

	mu     sync.Mutex
	groups map[snapshot.Username]*group
	hour   time.Time      // when counting began
	all    int            // mails in this hour
	hosts  map[string]int // of these, about one host alone
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

	id      string    // of the message: the same in every try
	written time.Time // its date
	next    time.Time // when it is tried again
}

// queue has the letters that wait for users, or for an address of `copy-to:`. One goroutine sends them.
type queue struct {
	copyTo  string    // empty for users
	letters []Letter  // guarded by the mutex of the Sender
	failing time.Time // since when the server fails, or refuses the login; zero if it doesn't
	err     error     // why it failed last
	resume  time.Time // when the server is asked again
}

const (
	maxPause   = 15 * time.Minute
	checkEvery = time.Second // whether something is due
)

var errEnded = errors.New("the run ended before the mail server took it") // why a copy was lost

// Start begins to send.
func (s *Sender) Start() {
	s.Pause, s.GiveUp = cmp.Or(s.Pause, 30*time.Second), cmp.Or(s.GiveUp, 4*time.Hour)
	s.groups, s.closing = make(map[snapshot.Username]*group), make(chan struct{})
	s.context, s.cancel = context.WithCancel(context.Background())
	last := make(chan struct{}) // closed when all copies wait
	for _, to := range s.Settings.CopyTo {
		q := &queue{copyTo: to}
		s.copies = append(s.copies, q)
		s.running.Go(func() { s.work(q, last) })
	}
	s.running.Go(func() {
		s.work(&s.users, s.closing)
		close(last)
	})
}

// Send queues a letter, such as one that another Sender could not send.
func (s *Sender) Send(l Letter) {
	l.written, l.next = cmp.Or(l.written, s.Now()), time.Time{}
	s.put(&s.users, l)
}

func (s *Sender) put(q *queue, l Letter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.letters = append(q.letters, l)
}

// Close sends what waits, for as long as the timeout lets it, and returns what was not sent.
func (s *Sender) Close(timeout time.Duration) (unsent []Letter) {
	close(s.closing)
	timer := time.AfterFunc(timeout, s.cancel)
	defer timer.Stop()
	s.running.Wait()
	s.cancel()
	for _, q := range s.copies {
		for _, l := range q.letters {
			l.Err = errEnded
			s.finish(q, l)
		}
	}
	for _, user := range slices.Sorted(maps.Keys(s.groups)) { // whom the limits keep back
		if l := s.groups[user].letter; len(l.Items) > 0 {
			l.Err = ErrNoRoom
			s.Done(l)
		}
	}
	return s.users.letters
}

// work sends what is due, one after the other, until the end, and then what waits for its first try.
func (s *Sender) work(q *queue, end <-chan struct{}) {
	for ended := false; !ended; {
		select {
		case <-end:
			ended = true
		case <-time.After(min(checkEvery, s.Pause)):
		}
		if q == &s.users {
			for _, l := range s.due(s.Now(), ended) {
				s.Send(l)
			}
		}
		for l, ok := s.next(q); ok; l, ok = s.next(q) {
			s.try(q, l)
		}
	}
}

// next takes the first letter out of a queue that is due: while its server is left alone, one that is given up.
func (s *Sender) next(q *queue) (l Letter, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	i := slices.IndexFunc(q.letters, func(l Letter) bool {
		return !now.Before(l.next) && !now.Before(q.resume) || now.Sub(l.written) >= s.GiveUp
	})
	if i < 0 || s.context.Err() != nil {
		return l, false
	}
	l = q.letters[i]
	q.letters = slices.Delete(q.letters, i, i+1)
	return l, true
}

// try sends a letter once, if its server isn't left alone. One that may succeed later waits behind the others.
func (s *Sender) try(q *queue, l Letter) {
	asks := !s.Now().Before(q.resume)
	if l.Err = q.err; asks {
		l.Err = s.deliver(s.context, q.copyTo, &l)
	}
	failed, now, ended := failureOf(l.Err), s.Now(), s.context.Err() != nil
	if asks && failed.server && !ended {
		if q.failing.IsZero() {
			q.failing = now
			s.Warn(fmt.Errorf("mail to %s waits, and is tried again: %w", cmp.Or(q.copyTo, "users"), l.Err))
		}
		q.err, q.resume = l.Err, s.later(q.failing, now)
	}
	switch {
	case l.Err == nil:
		q.failing = time.Time{}
	case failed.final:
	case ended || now.Sub(l.written) < s.GiveUp:
		l.next = s.later(l.written, now)
		s.put(q, l)
		return
	default:
		l.Err = fmt.Errorf("given up after %s: %w", text.ShortDuration(now.Sub(l.written)), l.Err)
	}
	s.finish(q, l)
}

// later is when something is tried again that has failed since a time: the longer it has, the later.
func (s *Sender) later(since, now time.Time) time.Time {
	return now.Add(min(max(now.Sub(since), s.Pause), maxPause))
}

// finish passes on what became of a letter, and copies what a user was sent. Of copies only failures matter.
func (s *Sender) finish(q *queue, l Letter) {
	switch {
	case q == &s.users:
		for _, c := range s.copies {
			if l.Err == nil && !strings.EqualFold(c.copyTo, l.To) {
				s.put(c, l)
			}
		}
		s.Done(l)
	case l.Err != nil:
		user := text.Shown(string(l.User))
		s.Warn(fmt.Errorf("the copy to %s of a mail to %s was not sent: %w", q.copyTo, user, l.Err))
	}
}

// deliver sends a letter, or its copy, now, and notes the address and the text.
func (s *Sender) deliver(ctx context.Context, copyTo string, l *Letter) error {
	address, err := s.Settings.Address(l.User)
	l.To, l.id = cmp.Or(copyTo, address), cmp.Or(l.id, strings.ToLower(rand.Text()))
	subject, body := Compose(*l, s.Settings)
	l.Text = subject + "\n" + body
	if err == nil && s.MayBegin != nil {
		err = s.MayBegin()
	}
	if err != nil {
		return failure{err, true, false}
	}
	return send(ctx, s.Settings, l.To, l.message(s.Settings, address, subject, body))
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
	now := s.Now()
	l := Letter{User: user, Test: true, written: now}
	l.Items = []notify.UserMessage{{ID: "test", Line: notify.TestText, At: now}}
	l.Err = s.deliver(ctx, "", &l)
	results := []Letter{l}
	for i := 0; l.Err == nil && i < len(s.Settings.CopyTo); i++ {
		c := l
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
	case errors.Is(err, policy.ErrOptedOut):
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
