package enforcement

import (
	"context"
	"errors"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// load is the memory with which a run, or a leader in its term, begins.
func (l *loop) load(ctx context.Context) controller.FleetMemory {
	if l.store == nil {
		return controller.FleetMemory{}
	}
	memory, err := l.store.Load(ctx)
	memory, other := memory.For(l.options.Hosts)
	for _, err := range []error{err, other} {
		if err != nil {
			l.log.Warn().Msg(text.Late(err, 0).Error())
		}
	}
	if hold := memory.Operator.Hold; hold != nil {
		l.log.Warn().Msg(hold.String())
	}
	return memory
}

func (l *loop) saveNow(store controller.Store) {
	saved, err := l.controller.Encode(l.program.Now())
	if err == nil {
		err = store.Save(context.Background(), saved)
	}
	l.saved(err)
}

// saved logs when the memory can't be saved, again for another reason, and when it is saved again.
func (l *loop) saved(err error) {
	if errors.Is(err, etcd.ErrConflict) {
		return // the election says why
	}
	now := l.program.Now()
	l.part.wrote(err, now)
	kind := kindOf(err)
	if kind == l.unsaved {
		return
	}
	if l.unsaved == "" {
		l.unsavedSince = now
	}
	l.unsaved = kind
	var notShared *statedir.NotSharedError
	switch {
	case err == nil:
		l.log.Warn().Msgf("the memory is saved again, after %s", text.ShortDuration(now.Sub(l.unsavedSince)))
	case errors.As(err, &notShared):
		l.log.Warn().Str("error", text.Late(notShared.Err, 0).Error()).
			Msg("no other controller can take over as things are, since the memory can't be written to etcd" +
				nextStep(notShared.Err))
	default:
		l.log.Warn().Err(err).Msg("the memory could not be saved: after a restart, times would start again")
	}
}

// kindOf is the same for errors that mean the same; empty without one.
func kindOf(err error) string {
	var notShared *statedir.NotSharedError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &notShared) && !errors.Is(err, statedir.ErrTooLarge) && !etcd.Refused(err):
		return "no answer"
	}
	return err.Error()
}

// freeSpace is what to do when etcd's space is used up.
const freeSpace = "`etcdctl compact REVISION` with the revision that `etcdctl endpoint status -w json` shows, " +
	"then `etcdctl defrag` and `etcdctl alarm disarm`"

// nextStep is what to do about a memory that can't be written to etcd.
func nextStep(err error) string {
	switch {
	case errors.Is(err, statedir.ErrTooLarge):
		return ""
	case etcd.IsFull(err):
		return "; next: " + freeSpace
	}
	return "; next: `etcdctl endpoint health`"
}
