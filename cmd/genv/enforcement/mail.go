package enforcement

import (
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// mailGather is how long the first mail about a matter waits for more findings. A loop with
// a longer interval doesn't wait: all findings of a cycle come at once.
const mailGather = time.Minute

// mailer is the mail of a run. Its post changes with the policy.
type mailer struct {
	log    zerolog.Logger
	record func(audit.Record) // nil for none
	now    func() time.Time

	mu     sync.Mutex
	post   *mail.Post // nil for none
	former sync.WaitGroup
}

// configure begins to send mail as a policy says, and returns what the controller needs.
// What waits for the server of the policy before is sent by the new one.
func (m *mailer) configure(options *Options) controller.Mailing {
	settings := options.Policy.Mail
	var next *mail.Post
	if settings != nil && !options.DryRun {
		m.check(settings)
		next = mail.NewPost(mail.Options{
			Settings: settings, Now: m.now, Done: m.done,
			Warn: func(err error) { m.log.Warn().Err(err).Msg("mail: enforcement continues") },
		})
	}
	m.mu.Lock()
	former := m.post
	m.post = next
	m.mu.Unlock()
	if former != nil {
		m.former.Go(func() {
			for _, l := range former.Close(hooksTimeout) {
				m.Send(l)
			}
		})
	}
	if settings == nil {
		return controller.Mailing{}
	}
	mailing := controller.Mailing{Mailer: m, Rules: mailRules(options), OptedOut: settings.OptedOut}
	if options.DryRun {
		mailing.Mailer = dryMailer{m.log, options.Policy}
	}
	return mailing
}

func mailRules(options *Options) mail.Rules {
	settings := options.Policy.Mail
	rules := mail.Rules{Gather: mailGather, Digest: settings.Digest, PerUser: settings.PerUser, InAll: settings.InAll}
	if options.Interval == 0 || options.Interval >= mailGather || options.DryRun {
		rules.Gather = 0
	}
	return rules
}

// check warns of what will keep mail from being sent. Enforcement doesn't depend on it.
func (m *mailer) check(settings *policy.Mail) {
	if settings.PasswordFile == "" {
		return
	}
	if _, err := mail.ReadPassword(settings.PasswordFile); err != nil {
		m.log.Warn().Err(err).Msg("mail: no mail is sent until the password can be read")
	}
}

// Send implements controller.Mailer.
func (m *mailer) Send(l mail.Letter) {
	m.mu.Lock()
	post := m.post
	if post != nil {
		post.Send(l)
	}
	m.mu.Unlock()
	if post == nil {
		m.done(mail.Result{Letter: l, Err: errors.New("not sent: the policy has no `mail:` any more")})
	}
}

// Unsent implements controller.Mailer.
func (m *mailer) Unsent(l mail.Letter, err error) { m.done(mail.Result{Letter: l, Err: err}) }

// done records what became of a mail.
func (m *mailer) done(r mail.Result) {
	if r.Err != nil {
		m.log.Warn().Err(r.Err).Str("user", string(r.User)).Msg("a mail was not sent; enforcement continues")
	}
	if m.record == nil {
		return
	}
	record := audit.Record{
		Kind: audit.KindNotified, Channel: audit.ChannelMail, To: r.To, Time: m.now().UTC(), Run: r.Run, Cycle: r.Cycle, User: r.User, Text: r.Text,
	}
	for i := range r.Items {
		record.IDs = append(record.IDs, r.Items[i].ID)
	}
	if host := r.Items[0].Host; len(r.Items) == 1 {
		record.Host = snapshot.Hostname(host)
	}
	if r.Err != nil {
		record.Reason = r.Err.Error()
	}
	m.record(record)
}

// close sends what waits for less than a minute. Digests wait in the memory.
func (m *mailer) close(last *controller.Controller) {
	if last.Mailing.Mailer != nil {
		for _, l := range last.Memory.Mail.Flush(last.Mailing.Rules, m.now()) {
			last.Mailing.Mailer.Send(l)
		}
	}
	m.end(&last.Memory.Mail, func() error { return nil }, hooksTimeout)
}

// end sends what was taken out of the memory, and gives back to it what could not be sent within
// a time, for the next run or leader, unless mayAct says that it isn't the fleet's any more. It reports whether
// that is something.
func (m *mailer) end(memory *mail.Backlog, mayAct func() error, within time.Duration) (returned bool) {
	m.former.Wait()
	m.mu.Lock()
	post := m.post
	m.post = nil
	m.mu.Unlock()
	if post == nil {
		return false
	}
	for _, l := range post.Close(within) {
		if mayAct() != nil {
			m.Unsent(l, errNotLeading)
			continue
		}
		memory.Return(l, m.now())
		returned = true
	}
	return returned
}

// errNotLeading is why a mail was lost that the mail server didn't take.
var errNotLeading = errors.New("not sent until the run ended, and this controller doesn't lead any more")

// dryMailer says which mails would be sent.
type dryMailer struct {
	log    zerolog.Logger
	policy *policy.File
}

// Unsent implements controller.Mailer. There is no election in a dry run.
func (dryMailer) Unsent(mail.Letter, error) {}

// Send implements controller.Mailer.
func (d dryMailer) Send(l mail.Letter) {
	subject, body := mail.Compose(l, d.policy.Mail)
	d.log.Info().Str("user", string(l.User)).Str("subject", subject).Str("text", body).Msg("dry run: this mail would be sent")
}
