package enforcement

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/controller/handover"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	// followEvery is how often a standby reads the memory of the leader, and followWithin how
	// long that may take: a new leader waits for it.
	followEvery  = time.Second
	followWithin = 2 * time.Second
	// publishWithin is how long etcd may take to keep a memory, before what waits for that is
	// sent to hosts anyway: long enough to ask a second member if the first one hangs.
	publishWithin = 2 * time.Second
	// inheritWithin is how long etcd may take to return it to a new leader.
	inheritWithin = 2 * time.Second
	inheritAgain  = 100 * time.Millisecond
	inheritTries  = 10
	// inheritAll is for how long a new leader that has read the head waits for the rest.
	inheritAll = 4 * time.Second
)

// follow reads the memory of the leader again and again.
func (p *participation) follow(ctx context.Context) {
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		if p.Status().Role == election.Standby {
			limited, cancel := context.WithTimeout(ctx, followWithin)
			_ = p.follower.Poll(limited) // the election says that etcd doesn't answer
			cancel()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// inherit is the memory of the previous leader: from etcd, or from this controller's own folder.
// If this one was the last that led, it goes on with what it knows: also with what it did and
// was asked for while etcd didn't answer.
func (l *loop) inherit() controller.FleetMemory {
	failed, now := l.part.catchUp(), l.program.Now()
	if own := l.part.own(now, failed); own != nil {
		return *own
	}
	memory, found, err := l.part.follower.Memory(now)
	switch {
	case errors.Is(err, handover.ErrNone) && failed == nil:
		return l.memory.load(l.options.Hosts)
	case err != nil:
		l.log.Warn().Str("error", text.Late(errors.Join(err, failed), 0).Error()).Msg("the previous leader's memory can't be used; this controller continues with its own")
		own := l.memory.load(l.options.Hosts)
		own.Mail = mail.Backlog{} // the other one may have sent it
		own.Operator = own.Operator.With(memory.Operator)
		return own
	case failed != nil:
		l.log.Warn().Str("error", text.Late(failed, 0).Error()).Msg("etcd did not return the latest memory of the previous leader")
	}
	if !found {
		l.log.Warn().Msg("the previous leader's memory is not in etcd: warning periods, idle times and graces start again")
	}
	memory.Operator = memory.Operator.With(l.memory.askedSince(memory.Rules.Time))
	if l.part.follower.Behind() {
		l.log.Warn().Msg("etcd did not return the latest version of the previous leader's memory: messages may be repeated")
	}
	if hold := memory.Operator.Hold; hold != nil {
		l.log.Warn().Msg(hold.String())
	}
	return memory
}

// catchUp reads the memory of the previous leader. Nothing may be done before it is known who that was, and
// what operators asked for, so it tries again until then, while this controller leads. It waits for the
// rest, too, since without it messages are repeated, but not for long: no rule is enforced meanwhile.
func (p *participation) catchUp() (err error) {
	begun, start := p.follower.Clock(), time.Now()
	for range inheritTries {
		ctx, cancel := context.WithTimeout(context.Background(), inheritWithin)
		err = p.follower.Poll(ctx)
		cancel()
		enough := time.Since(start) >= inheritAll && p.follower.HeadSince(begun)
		if err == nil || enough || !p.Leads() {
			break
		}
		time.Sleep(inheritAgain)
	}
	return err
}

// own is the memory with which this controller led, if no other one has led since, as far as
// is known. failed says why etcd didn't answer.
func (p *participation) own(now time.Time, failed error) *controller.FleetMemory {
	last := p.follower.Epoch()
	if p.led == nil || now.Sub(p.led.until) > controller.MaxMemoryAge || last != p.led.epoch && (last != 0 || failed == nil) {
		return nil
	}
	memory := p.led.memory.Resumed()
	return &memory
}

// save returns what keeps the memory as it is now, on the disk and for the next leader.
func (l *loop) save(m *controller.FleetMemory) (write func()) {
	disk := l.memory.save(m)
	if l.part == nil {
		return disk
	}
	publish := l.publish(m)
	return func() {
		l.sayUnpublished(publish())
		disk()
	}
}

// keep keeps what operators asked for.
func (l *loop) keep(state operator.State) error {
	if err := l.memory.keep(state); err != nil {
		return fmt.Errorf("not saved, so it is lost at a restart: %w", err)
	}
	if l.part == nil || reflect.DeepEqual(state, l.part.kept) {
		return nil
	}
	memory := l.controller.Memory
	memory.Operator = state
	if err := l.publish(&memory)(); err != nil {
		return fmt.Errorf("kept here, but not in etcd, so it is lost if another controller takes over: %w", text.Late(err, 0))
	}
	return nil
}

// errNotPublished says that this controller's lease ends: the election says why.
var errNotPublished = errors.New("etcd doesn't answer, or another controller leads")

// publish returns what keeps the memory as it is now in etcd. It gives up early while etcd
// doesn't answer. The error may be errNotPublished.
func (l *loop) publish(m *controller.FleetMemory) func() error {
	document, err := handover.Encode(m, l.program.Now())
	epoch := l.term.Epoch
	l.part.kept = m.Operator
	return func() error {
		status := l.part.Status()
		if err != nil {
			return err
		}
		if !l.part.LeadsWith(epoch) || status.Err != nil {
			return errNotPublished
		}
		ctx, cancel := context.WithTimeout(context.Background(), publishWithin)
		defer cancel()
		err := l.part.publisher.Publish(ctx, epoch, document)
		if errors.Is(err, etcd.ErrConflict) {
			return errNotPublished
		}
		if err == nil {
			l.part.written.Store(&writing{epoch, l.program.Now()})
		}
		if err == nil && document.TooLong() {
			err = errTooLong
		}
		return err
	}
}

// unpublished is why the memory of a leader is not in etcd as it is here. It is safe for concurrent use.
type unpublished struct {
	mu    sync.Mutex
	epoch uint64 // of the leader
	kind  string // of the last error; empty for none
	since time.Time
}

// turn notes the kind of an error, and reports whether that is another one than before.
func (u *unpublished) turn(kind string, now time.Time) (changed bool) {
	if u.kind == "" {
		u.since = now
	}
	changed, u.kind = kind != u.kind, kind
	return changed
}

// errTooLong says that of the memory only what operators asked for is in etcd.
var errTooLong = errors.New("it is too large for etcd")

// sayUnpublished logs once that the memory could not be written to etcd, again for an error of another
// kind, and once that it is written again.
func (l *loop) sayUnpublished(err error) {
	if errors.Is(err, errNotPublished) {
		return // the election says why
	}
	u, epoch, now := &l.part.unpublished, l.part.Status().Epoch, l.program.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.epoch != epoch {
		u.epoch, u.kind = epoch, ""
	}
	kind, reason, next := unpublishedBecause(err)
	switch {
	case !u.turn(kind, now):
	case err == nil:
		l.log.Warn().Msgf("the memory is written to etcd again, after %s", text.ShortDuration(now.Sub(u.since)))
	default:
		l.log.Warn().Str("error", reason).Msg("the memory can't be written to etcd: if another controller takes over, warning periods start again" + next)
	}
}

// freeSpace is what to do when etcd's space is used up.
const freeSpace = "`etcdctl compact REVISION` with the revision that `etcdctl endpoint status -w json` shows, then `etcdctl defrag` and `etcdctl alarm disarm`"

// unpublishedBecause says why a memory could not be written to etcd: the kind of an error is the same for all
// that mean the same. Without an error it is empty.
func unpublishedBecause(err error) (kind, reason, next string) {
	switch {
	case err == nil:
		return "", "", ""
	case errors.Is(err, errTooLong):
		return errTooLong.Error(), err.Error(), ""
	case !etcd.Refused(err):
		return "no answer", text.Late(err, 0).Error(), "; next: `etcdctl endpoint health`"
	case strings.Contains(err.Error(), "database space exceeded"):
		return err.Error(), err.Error(), "; next: " + freeSpace
	}
	return err.Error(), err.Error(), "; next: `etcdctl endpoint health`"
}
