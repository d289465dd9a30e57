// Package mail notifies users by mail: it groups what a user is to be told, writes mails, and sends them by SMTP or
// by a program such as sendmail(8).
//
//	sender := mail.NewSender(options)
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
// The package neither decides what a user gets to know nor keeps a record: see enforce/notify and Options.Done.
package mail

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

// Options are how a Sender works.
type Options struct {
	Settings *policy.Mail
	Gather   time.Duration // for how long the first message to a user waits for others
	Now      func() time.Time
	// MayBegin, if set, is asked right before each try. Its error says that nothing may be sent any more.
	MayBegin func() error
	// Done is called once for each letter that Close doesn't return, and Warn for what is wrong besides: by several
	// goroutines.
	Done func(Result)
	Warn func(error)
	// Pause is how long to wait before a second try; it doubles up to maxPause. 0 for 30 seconds. GiveUp is how long a
	// mail is tried; 0 for 4 hours.
	Pause, GiveUp time.Duration
}

// Letter is a mail that is due.
type Letter struct {
	User   snapshot.Username
	Items  []notify.Message
	More   int    // items that are left out
	Digest bool   // they were collected for an interval
	Run    string // of the controller, and its cycle, for the record
	Cycle  int
	Test   bool // that mail works, by SendTest
}

// Result is what became of a letter.
type Result struct {
	Letter
	To   string // the address; empty if none was found
	Text string // what was sent, or was going to be
	Err  error  // nil if the mail was handed over
}

// Why a user gets no mail.
var (
	ErrOptedOut = errors.New("not sent: the policy lists the user under `opt-out`")
	ErrNoRoom   = errors.New("not sent: too many mails of this hour wait already")
	errNoName   = errors.New("not sent: the host doesn't report the name of this user")
)

const (
	// maxItems is how many messages to a user wait at most, and maxUsers of how many users; maxUsersPerHost is how many
	// of these one host may have added, and hostShare the part of all mails that may be about one host alone.
	maxItems        = 20
	maxKnown        = 4 * maxItems
	maxUsers        = 1000
	maxUsersPerHost = 100
	hostShare       = 4
)

// group is what waits for one user, and what the user was sent in this interval.
type group struct {
	letter Letter
	host   snapshot.Hostname // that added the user
	first  time.Time         // when the oldest item came
	began  time.Time         // the interval
	sent   int
	known  []string // the last items: a message that may not have reached a terminal is repeated, and mail is not
}

// Sender sends mail without delaying its caller. It is safe for concurrent use until Close.
type Sender struct {
	options Options
	queue   *queue   // of mails to users
	copies  []*queue // one for each address of `copy-to:`, so that none delays users or the others
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	groups map[snapshot.Username]*group
	hour   time.Time // when counting began
	all    int       // mails in this hour
	hosts  map[snapshot.Hostname]int
}

// NewSender starts a Sender, which must be closed.
func NewSender(o Options) *Sender {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Sender{options: o, cancel: cancel, groups: make(map[snapshot.Username]*group), queue: newQueue(o)}
	for _, to := range o.Settings.CopyTo {
		c := newQueue(o)
		c.copyTo = to
		s.copies = append(s.copies, c)
		s.running.Go(func() { c.work(ctx) })
	}
	s.queue.due, s.queue.sent = s.due, func(r *Result, data []byte) { copyTo(s.copies, r, data) }
	s.running.Go(func() { s.queue.work(ctx) })
	return s
}

// Refuse is why a user gets no mail; nil for one who does.
func Refuse(settings *policy.Mail, user snapshot.Username) error {
	switch {
	case user == "":
		return errNoName
	case settings.OptedOut(user):
		return ErrOptedOut
	}
	return nil
}

// Add adds what a user is told. It doesn't wait. The error is why the user gets no mail.
func (s *Sender) Add(n *notify.Message, run string, cycle int) error {
	if err := Refuse(s.options.Settings, n.User); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, host := s.options.Now(), n.Host
	g := s.groups[n.User]
	if g == nil {
		if len(s.groups) >= maxUsers || s.addedBy(host) >= maxUsersPerHost {
			return ErrNoRoom
		}
		g = &group{host: host, began: now}
		s.groups[n.User] = g
	}
	g.add(n, now)
	g.letter.User, g.letter.Run, g.letter.Cycle = n.User, run, cycle
	s.queue.signal()
	return nil
}

// addedBy is how many users a host added.
func (s *Sender) addedBy(host snapshot.Hostname) (n int) {
	for _, g := range s.groups {
		if g.host == host {
			n++
		}
	}
	return n
}

func (g *group) add(n *notify.Message, now time.Time) {
	stage := n.ID
	if n.Pending {
		stage += " pending"
	}
	if slices.Contains(g.known, stage) {
		return
	}
	g.known = append(g.known[max(0, len(g.known)-maxKnown+1):], stage)
	if len(g.letter.Items) == 0 {
		g.first = now
	}
	if len(g.letter.Items) < maxItems {
		g.letter.Items = append(g.letter.Items, *n)
	} else {
		g.letter.More++
	}
}

// over says whether a time has passed, or the clock was set back.
func over(since time.Time, length time.Duration, now time.Time) bool {
	age := now.Sub(since)
	return age >= length || age < 0
}

// due takes the letters that are due, at the end of a run all, and forgets what is over.
func (s *Sender) due(now time.Time, closing bool) (letters []Letter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if over(s.hour, time.Hour, now) {
		s.hour, s.all, s.hosts = now, 0, make(map[snapshot.Hostname]int)
	}
	for _, user := range slices.Sorted(maps.Keys(s.groups)) {
		g, settings := s.groups[user], s.options.Settings
		ended := over(g.began, settings.Digest, now)
		switch {
		case len(g.letter.Items) == 0 && ended:
			delete(s.groups, user)
		case len(g.letter.Items) == 0 || !closing && !ended && (g.sent >= settings.PerUser ||
			!over(g.first, s.options.Gather, now)):
		case s.admit(g.letter.Items):
			letters = append(letters, g.take(now, ended, settings.PerUser))
		}
	}
	return letters
}

// take takes what waits for a user. At the end of an interval another one begins.
func (g *group) take(now time.Time, ended bool, perUser int) Letter {
	l := g.letter
	if ended {
		l.Digest, g.began, g.sent = g.sent >= perUser, now, 0
	}
	g.letter, g.sent = Letter{}, g.sent+1
	return l
}

// admit counts a mail, if the limits allow it. One about several hosts counts for none of them.
func (s *Sender) admit(items []notify.Message) bool {
	host, limit := items[0].Host, s.options.Settings.InAll
	if slices.ContainsFunc(items, func(i notify.Message) bool { return i.Host != host }) {
		host = ""
	}
	if s.all >= limit || host != "" && s.hosts[host] >= max(1, limit/hostShare) {
		return false
	}
	s.all++
	s.hosts[host]++
	return true
}

// Send queues a letter, such as one that another Sender could not send.
func (s *Sender) Send(l Letter) { s.queue.put(newJob(l, s.options.Now())) }

// Close sends what waits, for as long as the timeout lets it, and returns what was not sent.
func (s *Sender) Close(timeout time.Duration) (unsent []Letter) {
	timer := time.AfterFunc(timeout, s.cancel)
	defer timer.Stop()
	s.queue.finish()
	for _, c := range s.copies { // what was sent until now is copied, too
		c.end()
	}
	s.running.Wait()
	s.cancel()
	for _, c := range s.copies {
		for _, j := range c.jobs {
			s.options.Warn(notCopied(j.letter, c.copyTo, errEnded))
		}
	}
	for _, j := range s.queue.jobs {
		unsent = append(unsent, j.letter)
	}
	return unsent
}
