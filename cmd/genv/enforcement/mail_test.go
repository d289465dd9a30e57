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
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/controller"
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

func letterTo(user string) mail.Letter {
	return mail.Letter{User: "alice", Run: "run", Cycle: 7, Items: []notify.NoticeItem{{ID: "id of " + user, Host: "a", Rule: "idle", Text: "It is idle.", At: time.Now()}}}
}

// After SIGHUP what waits for the old server is sent by the new one, once.
func TestMailAfterAReload(t *testing.T) {
	old, next := mailtest.Start(t), mailtest.Start(t)
	old.Answer("EHLO", "421 closed")
	var recorded records
	m := &mailer{log: zerolog.Nop(), record: recorded.add, now: time.Now}
	m.configure(mailSetup(old)).Mailer.Send(letterTo("alice"))
	require.Eventually(t, func() bool { return len(old.Commands()) > 0 }, time.Minute, time.Millisecond)
	last := &controller.Controller{Options: controller.Options{Mailing: m.configure(mailSetup(next))}}
	require.Eventually(t, func() bool { return len(next.Mails()) == 1 }, time.Minute, time.Millisecond)
	m.close(last)
	require.Len(t, next.Mails(), 1)
	require.Empty(t, old.Mails())
	require.Empty(t, last.Memory.Mail.Users)
	require.Len(t, recorded.list, 1)
	r := recorded.list[0]
	require.Equal(t, audit.ChannelMail, r.Channel)
	require.Equal(t, "alice@example.org", r.To)
	require.Equal(t, []string{"id of alice"}, r.IDs)
	require.Equal(t, 7, r.Cycle)
	require.Empty(t, r.Reason)
}

// A policy without mail sends none, and says so of what was waiting.
func TestMailIsSwitchedOff(t *testing.T) {
	old := mailtest.Start(t)
	old.Answer("EHLO", "421 closed")
	var recorded records
	m := &mailer{log: zerolog.Nop(), record: recorded.add, now: time.Now}
	m.configure(mailSetup(old)).Mailer.Send(letterTo("alice"))
	require.Eventually(t, func() bool { return len(old.Commands()) > 0 }, time.Minute, time.Millisecond)
	mailing := m.configure(mailSetup(nil))
	require.Nil(t, mailing.Mailer)
	m.close(&controller.Controller{Options: controller.Options{Mailing: mailing}})
	require.Len(t, recorded.list, 1)
	require.Contains(t, recorded.list[0].Reason, "no `mail:` any more")
	require.Empty(t, old.Mails())
}

// What can't be sent at the end of a run is in its memory, for the next one.
func TestMailThatIsNotSentStaysInTheMemory(t *testing.T) {
	s := mailtest.Start(t)
	s.Answer("EHLO", "421 closed")
	m := &mailer{log: zerolog.Nop(), now: time.Now}
	last := &controller.Controller{Options: controller.Options{Mailing: m.configure(mailSetup(s))}}
	require.True(t, last.Memory.Mail.Add("bob", letterTo("bob").Items[0], last.Mailing.Rules, time.Now()))
	m.close(last)
	require.Empty(t, s.Mails())
	require.Len(t, last.Memory.Mail.Users["bob"].Items, 1)
	due := last.Memory.Mail.Due(mail.Rules{Digest: time.Hour, PerUser: 4, InAll: 100}, time.Now())
	require.Len(t, due, 1, "it is due at once")
}
