package enforcement

import (
	"time"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/hooks"
)

// hooksTimeout is how long the end of a run waits for hooks to finish.
const hooksTimeout = 10 * time.Second

func (l *loop) hookDone(r hooks.Post) {
	if r.Err != nil {
		l.log.Warn().Err(r.Err).Msg("a hook failed; enforcement continues")
	}
	if l.record == nil {
		return
	}
	record := audit.Record{
		Kind: audit.KindHook, Channel: audit.ChannelCommand, To: r.To, IDs: r.IDs, Time: l.program.Now().
			UTC(), Text: string(r.Event),
	}
	if r.Webhook {
		record.Channel = audit.ChannelWebhook
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
