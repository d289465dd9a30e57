package enforcement

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/companions"
	"github.com/seed-3119e985/genv/remote/hooks"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

const (
	mailWithin   = 2 * time.Second  // an ending leader may still send mail, before the next one leads
	hooksTimeout = 10 * time.Second // the end of a run waits for hooks
)

// mailer sends mail for a run, in the terms in which it leads. It belongs to the loop.
type mailer struct {
	log    zerolog.Logger
	record func(audit.Record) // nil for none
	now    func() time.Time
	sender *mail.Sender // nil for none
	former sync.WaitGroup
}

// configure sends mail by a policy, waiting mail included, if mayBegin allows it; nil for no mail.
func (m *mailer) configure(options *Options, mayBegin func() error) companions.Mail {
	settings := options.Policy.Mail
	switch {
	case settings == nil:
		m.end(hooksTimeout)
		return nil
	case options.DryRun:
		return func(n *notify.UserMessage, _ string, _ int) error { return m.show(n, settings) }
	}
	if _, err := folder.ReadPassword(settings.PasswordFile); settings.User != "" && err != nil {
		m.log.Warn().Err(err).Msg("mail: no mail is sent until the password can be read; enforcement continues")
	}
	if m.sender != nil {
		m.sender.Configure(settings, mayBegin)
		return m.sender.Add
	}
	m.sender = &mail.Sender{Now: m.now, Done: m.done, Warn: func(err error) {
		m.log.Warn().Err(err).Msg("mail: enforcement continues")
	}}
	m.sender.Start(settings, mayBegin)
	return m.sender.Add
}

func (m *mailer) show(n *notify.UserMessage, settings *policy.Mail) error {
	if _, err := settings.Address(n.User); err != nil {
		return err
	}
	letter := mail.Letter{User: n.User, Items: []notify.UserMessage{*n}}
	subject, body := letter.Compose(settings.Contact)
	m.log.Info().Str("user", string(n.User)).Str("subject", subject).Str("text", body).
		Msg("dry run: this mail would be sent")
	return nil
}

func (m *mailer) end(within time.Duration) {
	if former := m.sender; former != nil {
		m.sender = nil
		m.former.Go(func() { former.Close(within) })
	}
}

func (m *mailer) close(within time.Duration) {
	m.end(within)
	m.former.Wait()
}

func (m *mailer) done(r mail.Letter) {
	if r.Err != nil {
		m.log.Warn().Err(r.Err).Str("user", string(r.User)).Str("to", r.To).
			Msg("a mail was not sent; enforcement continues")
	}
	if m.record == nil || r.CopyTo != "" {
		return
	}
	record := audit.Record{
		Kind: audit.KindNotified, Channel: audit.ChannelMail, To: r.To, Time: m.now().UTC(), Run: r.Run, Cycle: r.Cycle,
		User: r.User, Text: r.Text,
	}
	for i := range r.Items {
		record.IDs = append(record.IDs, r.Items[i].ID)
	}
	if len(r.Items) == 1 {
		record.Host = r.Items[0].Host
	}
	if r.Err != nil {
		record.Reason = r.Err.Error()
	}
	m.record(record)
}

func (l *loop) hookDone(r hooks.Post) {
	if r.Err != nil {
		l.log.Warn().Err(r.Err).Msg("a hook failed; enforcement continues")
	}
	if l.record == nil {
		return
	}
	record := audit.Record{
		Kind: audit.KindHook, Channel: r.Channel, To: r.To, IDs: r.IDs, Time: l.program.Now().UTC(),
		Text: string(r.Event),
	}
	if r.Err != nil {
		record.Reason = r.Err.Error()
	}
	l.recordLater(record)
}

// recordLater records the result of a notice after its cycle. The log keeps what can't be written.
func (l *loop) recordLater(r audit.Record) {
	if err := l.record.Append(r); err != nil {
		l.log.Warn().Err(err).Msg("what became of a notice is not recorded yet")
	}
}
