// Package mail notifies users by mail: it groups messages to a user, writes mails, and sends them by SMTP or a program
// such as sendmail(8).
//
//	sender := &mail.Sender{Now: time.Now, Done: record, Warn: log}
//	sender.Start(policy.Mail, mayBegin)
//	err := sender.Add(message, run, cycle) // returns at once
//	sender.Close(10 * time.Second)
//
// Messages within a minute are one mail. A user gets at most `per-user` mails in an interval of the policy (`digest`);
// further messages are one mail at its end. Hosts and the fleet have limits, since a host may make up users and
// findings.
//
// A mail is sent at most once: not again if the connection is lost between its end and the server's answer. A mail that
// fails or hangs delays others by at most the timeout of a try, and never the caller. Waiting mail is lost if the
// program is killed.
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

// Sender never delays its caller. It is safe for concurrent use from Start until Close.
type Sender struct {
	Now func() time.Time
	// Done is called for each letter and copy, and Warn when mail begins to wait: from any goroutine.
	Done func(Letter)
	Warn func(error)

	Pause  time.Duration // before a second try, which grows up to maxPause; 0 for 30 seconds
	GiveUp time.Duration // how long a mail is tried; 0 for 4 hours

	running sync.WaitGroup
	closing chan struct{}
	context context.Context //nolint:containedctx // of all tries
	cancel  context.CancelFunc

	mu       sync.Mutex
	settings *policy.Mail
	mayBegin func() error
	servers  map[string]*server // for users (empty), and for each address of `copy-to:`
	groups   map[snapshot.Username]*group
	hour     time.Time      // when counting began
	all      int            // mails in this hour
	hosts    map[string]int // of these, about one host alone
}

// Letter is a mail that is due, and its result.
type Letter struct {
	User   snapshot.Username
	Items  []notify.UserMessage
	More   int    // items that are left out
	Digest bool   // they were collected for an interval
	Run    string // of the controller, for the record
	Cycle  int
	Test   bool   // by SendTest
	CopyTo string // the address to which it is copied; empty for the user's

	To   string // the address; empty if none was found
	Text string // what was sent, or was going to be
	Err  error  // nil if the mail was handed over

	id      string    // of the message: the same in every try
	written time.Time // its date
	tried   *server   // last
	next    time.Time // when it is tried again there
}

type server struct {
	sync.Mutex
	settings *policy.Mail
	mayBegin func() error

	failing time.Time // since when it fails, or refuses the login; zero if it doesn't
	err     error     // why it failed last
	resume  time.Time // when it is asked again
}

const (
	maxPause   = 15 * time.Minute
	checkEvery = time.Second // whether something is due
)

var (
	errEnded  = errors.New("the mail server didn't take it before the run, or `mail:` of the policy, ended")
	errNoCopy = errors.New("not sent: the policy doesn't list the address under `copy-to` any more")
)

// Start begins to send. An error of mayBegin, called before each try, means that nothing may be sent any more.
func (s *Sender) Start(settings *policy.Mail, mayBegin func() error) {
	s.Pause, s.GiveUp = cmp.Or(s.Pause, 30*time.Second), cmp.Or(s.GiveUp, 4*time.Hour)
	s.groups, s.closing = make(map[snapshot.Username]*group), make(chan struct{})
	s.context, s.cancel = context.WithCancel(context.Background())
	s.Configure(settings, mayBegin)
	s.running.Go(s.work)
}

// Configure changes how mail is sent, including waiting mail. The server is tried again at once.
func (s *Sender) Configure(settings *policy.Mail, mayBegin func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings, s.mayBegin, s.servers = settings, mayBegin, make(map[string]*server)
}

// Close sends what waits for its first try, within the timeout.
func (s *Sender) Close(timeout time.Duration) {
	close(s.closing)
	defer time.AfterFunc(timeout, s.cancel).Stop()
	s.running.Wait()
	s.cancel()
}

func (s *Sender) work() {
	for ended := false; !ended; {
		ended = s.pause()
		for _, l := range s.due(s.Now(), ended) {
			l.written = s.Now()
			s.running.Go(func() { s.deliver(l) })
		}
	}
	for _, user := range slices.Sorted(maps.Keys(s.groups)) { // whom the limits keep back
		if l := s.groups[user].letter; len(l.Items) > 0 {
			l.Err = ErrNoRoom
			s.Done(l)
		}
	}
}

func (s *Sender) pause() (ended bool) {
	select {
	case <-s.closing:
		return true
	case <-time.After(min(checkEvery, s.Pause)):
		return false
	}
}

// deliver tries a letter until it is taken, refused or given up, or the end. A taken letter is then copied.
func (s *Sender) deliver(l Letter) {
	for !s.try(&l) {
		age := s.Now().Sub(l.written)
		if s.pause() {
			l.Err = errEnded
			break
		}
		if age >= s.GiveUp {
			l.Err = fmt.Errorf("given up after %s: %w", text.ShortDuration(age), l.Err)
			break
		}
	}
	s.Done(l)
	if l.Err != nil || l.CopyTo != "" {
		return
	}
	for _, l.CopyTo = range l.tried.settings.CopyTo {
		if copied := l; !strings.EqualFold(l.CopyTo, l.To) {
			copied.To = l.CopyTo
			s.running.Go(func() { s.deliver(copied) })
		}
	}
}

func (s *Sender) server(copyTo string) *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.servers[copyTo] == nil {
		s.servers[copyTo] = &server{settings: s.settings, mayBegin: s.mayBegin}
	}
	return s.servers[copyTo]
}

// try sends a letter, if it is time to and its server isn't paused. false: it may succeed later.
func (s *Sender) try(l *Letter) (done bool) {
	server := s.server(l.CopyTo)
	server.Lock()
	defer server.Unlock()
	switch now := s.Now(); {
	case now.Before(server.resume):
		l.Err = server.err
		return false
	case l.tried == server && now.Before(l.next), s.context.Err() != nil:
		return false
	}
	l.tried = server
	l.Err = l.send(s.context, server.settings, server.mayBegin)
	failed, _ := errors.AsType[failure](l.Err)
	now := s.Now()
	switch {
	case l.Err == nil, failed.final:
		server.failing = time.Time{}
		return true
	case failed.server && s.context.Err() == nil:
		if server.failing.IsZero() {
			server.failing = now
			s.Warn(fmt.Errorf("mail to %s waits, and is tried again: %w", cmp.Or(l.CopyTo, "users"), l.Err))
		}
		server.err, server.resume = l.Err, s.later(server.failing, now)
	}
	l.next = s.later(l.written, now)
	return false
}

// later is the time of the next try: the longer failures last, the later.
func (s *Sender) later(since, now time.Time) time.Time {
	return now.Add(min(max(now.Sub(since), s.Pause), maxPause))
}

func (l *Letter) send(ctx context.Context, settings *policy.Mail, mayBegin func() error) error {
	address, err := settings.Address(l.User)
	if l.CopyTo != "" && !slices.Contains(settings.CopyTo, l.CopyTo) {
		err = errNoCopy
	}
	l.To, l.id = cmp.Or(l.CopyTo, address), cmp.Or(l.id, strings.ToLower(rand.Text()))
	subject, body := l.Compose(settings.Contact)
	l.Text = subject + "\n" + body
	if err == nil {
		err = mayBegin()
	}
	if err != nil {
		return failure{err, true, false}
	}
	return send(ctx, settings, l.To, l.message(settings, address, subject, body))
}

// failure is why a mail was not sent.
type failure struct {
	error
	final  bool // another try would not help, or might send it twice
	server bool // the server can't be reached, or refuses the login: other mails would fail, too
}

func (f failure) Unwrap() error { return f.error }

// SendTest sends a mail marked as a test, and its copies, once each. The mail's result comes first.
func SendTest(ctx context.Context, settings *policy.Mail, user snapshot.Username, now time.Time) (results []Letter) {
	l := Letter{User: user, Test: true, written: now}
	l.Items = []notify.UserMessage{{ID: "test", Line: notify.TestText, At: now}}
	for _, l.CopyTo = range append([]string{""}, settings.CopyTo...) {
		l.Err = l.send(ctx, settings, func() error { return nil })
		results = append(results, l)
		if results[0].Err != nil {
			break
		}
	}
	return results
}

// NextStep is what an administrator can do about the Err of a Letter.
func NextStep(err error) string {
	switch f, _ := errors.AsType[failure](err); {
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
