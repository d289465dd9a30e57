package enforcement

import (
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/remote/companions"
	"github.com/seed-3119e985/genv/remote/hooks"
)

const (
	// MailGather is how long the first message to a user waits for others. With an interval as long as that it is
	// leastGather: all come at once. By then the memory is saved, which says that the user was told.
	MailGather, leastGather = time.Minute, 3 * time.Second

	mailWithin   = 2 * time.Second  // for which a leader that ends tries to send mails, before the next one leads
	hooksTimeout = 10 * time.Second // for which the end of a run waits for hooks to finish
)

// mailer is the mail of a run. Its sender changes with the policy. It belongs to the loop.
type mailer struct {
	log    zerolog.Logger
	record func(audit.Record) // nil for none
	now    func() time.Time
	sender *mail.Sender // nil for none
	former sync.WaitGroup
	handed chan struct{} // closed when the last one of these has handed over what it could not send; nil for none
}

// configure begins to send mail, also what waits, as a policy says, if mayBegin allows each; nil for no mail.
func (m *mailer) configure(options *Options, mayBegin func() error) companions.Mail {
	settings := options.Policy.Mail
	var next *mail.Sender
	if settings != nil && !options.DryRun {
		if _, err := mail.ReadPassword(settings.PasswordFile); settings.User != "" && err != nil {
			m.log.Warn().Err(err).Msg("mail: no mail is sent until the password can be read; enforcement continues")
		}
		gather := MailGather
		if options.Interval == 0 || options.Interval >= MailGather {
			gather = leastGather
		}
		next = &mail.Sender{
			Settings: settings, Gather: gather, Now: m.now, MayBegin: mayBegin, Done: m.done,
			Warn: func(err error) { m.log.Warn().Err(err).Msg("mail: enforcement continues") },
		}
		next.Start()
	}
	m.replace(next, hooksTimeout)
	switch {
	case settings == nil:
		return nil
	case !options.DryRun:
		return next.Add
	}
	return func(n *notify.UserMessage, run string, cycle int) error {
		if _, err := settings.Address(n.User); err != nil {
			return err
		}
		subject, body := mail.Compose(
			mail.Letter{User: n.User, Items: []notify.UserMessage{*n}, Run: run, Cycle: cycle}, settings)
		m.log.Info().Str("user", string(n.User)).Str("subject", subject).Str("text", body).
			Msg("dry run: this mail would be sent")
		return nil
	}
}

// replace ends the present sender in the background. The next one sends what it could not send.
func (m *mailer) replace(next *mail.Sender, within time.Duration) {
	former, before, handed := m.sender, m.handed, make(chan struct{})
	m.sender = next
	if former == nil {
		return
	}
	m.handed = handed
	m.former.Go(func() {
		defer close(handed)
		if before != nil {
			<-before
		}
		for _, l := range former.Close(within) {
			if next != nil {
				next.Send(l)
			} else {
				l.Err = errNotSent
				m.done(l)
			}
		}
	})
}

func (m *mailer) done(r mail.Letter) {
	if r.Err != nil {
		m.log.Warn().Err(r.Err).Str("user", string(r.User)).Msg("a mail was not sent; enforcement continues")
	}
	if m.record == nil {
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

// close sends what waits, for as long as a time lets it.
func (m *mailer) close(within time.Duration) {
	m.former.Wait()
	m.replace(nil, within)
	m.former.Wait()
}

var errNotSent = errors.New("not sent: the mail server didn't take it before the run, or `mail:` of the policy, ended")

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

// recordLater records what became of a notice after its cycle. What can't be written waits in the log.
func (l *loop) recordLater(r audit.Record) {
	if err := l.record.Append(r); err != nil {
		l.log.Warn().Err(err).Msg("what became of a notice is not recorded yet")
	}
}
