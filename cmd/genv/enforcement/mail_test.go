package enforcement

import (
	netmail "net/mail"
	"sync"
	"testing"
	"text/template"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
	"github.com/seed-3119e985/genv/enforce/policy"
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

func about(user snapshot.Username) *notify.UserMessage {
	return &notify.UserMessage{User: user, Host: "a", ID: "id of " + string(user), Rule: "idle", Line: "It is idle.", At: time.Now()}
}

func leads() error { return nil }

// After SIGHUP what waits for the old server is sent by the new one, once.
func TestMailAfterAReload(t *testing.T) {
	old, next := mailtest.Start(t), mailtest.Start(t)
	old.Answer("EHLO", "421 closed")
	var recorded records
	m := &mailer{log: zerolog.Nop(), record: recorded.add, now: time.Now}
	require.NoError(t, m.configure(mailSetup(old), leads).Add(about("alice"), "run", 7))
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
	require.NoError(t, m.configure(mailSetup(s), leads).Add(about("bob"), "run", 7))
	require.Nil(t, m.configure(mailSetup(nil), leads))
	m.close(time.Minute)
	require.Empty(t, s.Mails())
	require.Len(t, recorded.list, 1)
	require.Contains(t, recorded.list[0].Reason, "the mail server didn't take it")
}
