package enforcement

import (
	"context"
	netmail "net/mail"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/template"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/snapshot"
)

// records keeps what is recorded of mails.
type records struct {
	mu   sync.Mutex
	list []audit.Record
}

func (r *records) add(record audit.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, record)
}

// mailSetup mails through a server; nil for no mail.
func mailSetup(s *mailtest.Server) *Options {
	file := policy.Default()
	if s != nil {
		file.Mail = &policy.Mail{
			SMTP: s.Address, TLS: policy.StartTLS, CAFile: s.CAFile, Sender: netmail.Address{Address: "genv@example.org"}, Timeout: time.Minute,
			AddressTemplate: template.Must(template.New("").Parse("{{.User}}@example.org")), PerUser: 4, InAll: 100, Digest: time.Hour,
		}
	}
	return &Options{Policy: file, Interval: 10 * time.Second}
}

func about(user snapshot.Username, ago time.Duration) *notify.UserMessage {
	return &notify.UserMessage{User: user, Host: "a", ID: "id of " + string(user), Rule: "idle", Line: "It is idle.", At: time.Now().Add(-ago)}
}

func leads() error { return nil }

// After SIGHUP what waits for the old server is sent by the new one, once.
func TestMailAfterAReload(t *testing.T) {
	old, next := mailtest.Start(t), mailtest.Start(t)
	old.Answer("EHLO", "hang")
	slow := mailSetup(old)
	slow.Policy.Mail.Timeout = time.Second
	var recorded records
	m := &mailer{log: zerolog.Nop(), record: recorded.add, now: time.Now}
	require.NoError(t, m.configure(slow, leads)(about("alice", policy.MailGather), "run", 7))
	require.Eventually(t, func() bool { return len(old.Commands()) > 0 }, time.Minute, time.Millisecond)
	m.configure(mailSetup(next), leads) // while the first one still tries
	m.configure(mailSetup(next), leads)
	require.Eventually(t, func() bool { return len(next.Mails()) == 1 }, time.Minute, time.Millisecond)
	m.close(time.Minute)
	require.Len(t, next.Mails(), 1)
	require.Empty(t, old.Mails())
	require.Len(t, recorded.list, 1)
	r := recorded.list[0]
	require.Equal(t, audit.ChannelMail, r.Channel)
	require.Equal(t, "alice@example.org", r.To)
	require.Equal(t, []string{"id of alice"}, r.IDs)
	require.Equal(t, 7, r.Cycle)
	require.Empty(t, r.Reason)
}

// What can't be sent at the end of a run is in the record.
func TestMailThatIsNotSent(t *testing.T) {
	s := mailtest.Start(t)
	s.Answer("EHLO", "421 closed")
	var recorded records
	m := &mailer{log: zerolog.Nop(), record: recorded.add, now: time.Now}
	require.NoError(t, m.configure(mailSetup(s), leads)(about("bob", 0), "run", 7))
	require.Nil(t, m.configure(mailSetup(nil), leads))
	m.close(time.Minute)
	require.Empty(t, s.Mails())
	require.Len(t, recorded.list, 1)
	require.Contains(t, recorded.list[0].Reason, "the mail server didn't take it")
}

// A password that can't be read is said when mail begins, not first when there is one to send.
func TestMailWithoutItsPassword(t *testing.T) {
	var log strings.Builder
	m := &mailer{log: zerolog.New(&log), now: time.Now}
	for _, user := range []string{"", "genv"} {
		setup := mailSetup(mailtest.Start(t))
		setup.Policy.Mail.User, setup.Policy.Mail.PasswordFile = user, user
		require.Empty(t, log.String(), "without a login there is nothing to read")
		m.configure(setup, leads)
	}
	m.close(time.Minute)
	require.Contains(t, log.String(), "no mail is sent until the password can be read")
}

// store is an etcd in memory, with one controller.
type store struct {
	mu       sync.Mutex
	revision uint64
	entries  map[string]etcd.KeyValue
	failed   error // why it answers nothing; nil if it does
}

// elect has another controller lead, and fail has all requests but lists and new leases fail.
func (s *store) elect(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(etcd.KeyValue{Key: []byte(election.LeaderKey(electionKey)), Value: []byte(name)})
}

func (s *store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
}

func (*store) Grant(_ context.Context, ttl time.Duration) (lease int64, granted time.Duration, err error) {
	return 1, ttl, nil
}

func (s *store) Renew(ctx context.Context, _ int64, key string) (time.Duration, *etcd.KeyValue, error) {
	entry, err := s.Get(ctx, key)
	return election.TTL, entry, err
}

func (s *store) Revoke(context.Context, int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		delete(s.entries, election.LeaderKey(electionKey))
	}
	return s.failed
}

func (s *store) Create(_ context.Context, key string, value []byte, _ int64) (etcd.Creation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return etcd.Creation{KeyValue: s.put(etcd.KeyValue{Key: []byte(key), Value: value}), Own: true}, nil
}

func (s *store) put(e etcd.KeyValue) etcd.KeyValue {
	s.revision++
	e.Created, e.Modified = s.revision, s.revision
	s.entries[string(e.Key)] = e
	return e
}

func (s *store) Get(_ context.Context, key string) (*etcd.KeyValue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, known := s.entries[key]; known && s.failed == nil {
		return &e, nil
	}
	return nil, s.failed //nolint:nilnil // as etcd.Gateway does
}

func (s *store) Update(context.Context, string, uint64, []byte, int64) error { return s.failed }

func (s *store) PutAfter(_ context.Context, guard string, created uint64, key string, modified uint64, value []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return 0, s.failed
	}
	if s.entries[guard].Created != created || s.entries[key].Modified != modified {
		return 0, etcd.ErrConflict
	}
	return s.put(etcd.KeyValue{Key: []byte(key), Value: value}).Modified, nil
}

const electionKey = "/genv/lab"

// electedPart is the part of a controller that leads.
func electedPart(t *testing.T, s *store) *participation {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	begun := time.Now()
	e := election.New(election.Options{Cluster: s, Key: electionKey, Clock: func() time.Duration { return time.Since(begun) }, Now: time.Now})
	p := &participation{Elector: e, cancel: cancel}
	p.work.Go(func() { e.Campaign(ctx) })
	t.Cleanup(func() { cancel(); p.work.Wait() })
	<-e.Changed()
	require.True(t, e.Leads())
	return p
}

// leading is a loop in the term in which its part leads now.
func leading(l *loop) *loop {
	epoch := l.part.Status().Epoch
	l.term = remote.While(context.Background(), func() error {
		if l.part.LeadsWith(epoch) {
			return nil
		}
		return election.ErrNotLeading
	})
	return l
}

// electedLoop is a loop that mails bob in a minute.
func electedLoop(t *testing.T, s *store, server *mailtest.Server) *loop {
	t.Helper()
	folder, err := statedir.Open(t.TempDir())
	require.NoError(t, err)
	l := &loop{
		program: &command.Program{Now: time.Now}, log: zerolog.Nop(), service: &service{}, part: electedPart(t, s), begun: true,
		folder: folder,
	}
	l.store = l.shared(s, l.part.Status().Epoch)
	l.mail = mailer{log: l.log, now: time.Now}
	options := mailSetup(server)
	options.Progress = &render.Progress{}
	leading(l).configure(*options)
	require.NoError(t, l.mail.sender.Add(about("bob", 0), "run", 7))
	return l
}

// A leader that ends sends what waits. What the server doesn't take is in the record.
func TestMailOfALeaderThatEnds(t *testing.T) {
	for name, mails := range map[string]int{"the server takes it": 1, "it doesn't": 0} {
		t.Run(name, func(t *testing.T) {
			m, s := mailtest.Start(t), &store{entries: map[string]etcd.KeyValue{}}
			if mails == 0 {
				m.Answer("EHLO", "421 closed")
			}
			l := electedLoop(t, s, m)
			var recorded records
			l.mail.record = recorded.add
			l.resign()
			l.part.cancel()
			l.part.work.Wait()
			l.close()
			require.Len(t, m.Mails(), mails)
			require.Len(t, recorded.list, 1)
			require.Equal(t, mails == 0, recorded.list[0].Reason != "")
		})
	}
}

// Who doesn't lead any more sends no mail: the next leader tells users.
func TestMailOfALeaderThatBecameAStandby(t *testing.T) {
	m, s := mailtest.Start(t), &store{entries: map[string]etcd.KeyValue{}}
	l := electedLoop(t, s, m)
	var recorded records
	l.mail.record = recorded.add
	require.NoError(t, s.Revoke(t.Context(), 1))
	s.elect("another")
	require.Eventually(t, func() bool { return l.mayAct() != nil }, time.Minute, time.Millisecond)
	l.term = nil
	l.configure(l.options)
	require.Empty(t, l.controller.Companions)
	l.close()
	require.Empty(t, m.Mails())
	require.Len(t, recorded.list, 1)
	require.NotEmpty(t, recorded.list[0].Reason)
}

// Who is elected again acts with the memory of those who led meanwhile, and not with its own.
func TestAnEarlierEpochDoesNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{entries: map[string]etcd.KeyValue{}}
		l := leading(&loop{part: electedPart(t, s)})
		require.NoError(t, l.mayAct())
		require.NoError(t, s.Revoke(t.Context(), 1))
		time.Sleep(time.Minute)
		require.True(t, l.part.Leads())
		require.ErrorIs(t, l.mayAct(), election.ErrNotLeading)
		require.NoError(t, leading(l).mayAct())
	})
}
