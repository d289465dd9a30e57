package enforcement

import (
	"cmp"
	"time"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/controller"
)

// hooksTimeout is how long the end of a run waits for hooks to finish.
const hooksTimeout = 10 * time.Second

// hookDone records what became of an event at a hook.
func (l *loop) hookDone(r notify.Result) {
	if r.Err != nil {
		l.log.Warn().Err(r.Err).Msg("a hook failed; enforcement continues")
	}
	if l.record == nil {
		return
	}
	record := audit.Record{
		Kind: audit.KindHook, Channel: audit.ChannelCommand, To: r.To, IDs: r.IDs, Time: l.program.Now().UTC(), Text: string(r.Name),
	}
	if r.Webhook {
		record.Channel = audit.ChannelWebhook
	}
	if r.Err != nil {
		record.Reason = r.Err.Error()
	}
	l.recordLater(record)
}

func (l *loop) templateFailed(err error) { l.log.Warn().Err(err).Msg("templates") }

// texts are those of messages on terminals.
func (l *loop) texts(file *policy.File) controller.Texts {
	t := controller.Texts{Templates: file.Templates, Failed: l.templateFailed}
	if file.Mail != nil {
		t.Contact = cmp.Or(file.Mail.Contact, file.Mail.ReplyTo)
	}
	return t
}

// recordLater records what became of a notice after its cycle. What can't be written waits
// in the log.
func (l *loop) recordLater(r audit.Record) {
	if err := l.record.Append(r); err != nil {
		l.log.Warn().Err(err).Msg("what became of a notice is not recorded yet")
	}
}
