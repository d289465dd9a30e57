package enforcement

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/controller/handover"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/operator"
)

const (
	// followEvery is how often a standby reads the memory of the leader.
	followEvery = time.Second
	// publishWithin is how long etcd may take to keep a memory, before what waits for that is
	// sent to hosts anyway.
	publishWithin = time.Second
	// inheritWithin is how long etcd may take to return it to a new leader.
	inheritWithin = 2 * time.Second
)

// follow reads the memory of the leader again and again.
func (p *part) follow(ctx context.Context) {
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		if p.Status().Role == election.Standby {
			_ = p.follower.Poll(ctx) // the election says that etcd doesn't answer
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// inherit is the memory of the leader before: from etcd, or from this controller's own folder.
func (l *loop) inherit() controller.FleetMemory {
	ctx, cancel := context.WithTimeout(context.Background(), inheritWithin)
	defer cancel()
	failed := l.part.follower.Poll(ctx)
	memory, missing, err := l.part.follower.Memory(l.program.Now())
	switch {
	case errors.Is(err, handover.ErrNone) && failed == nil:
		return l.memory.load(l.setup.Hosts)
	case err != nil:
		l.log.Warn().Err(errors.Join(err, failed)).Msg("the memory of the leader before is dropped; this controller goes on with its own")
		return l.memory.load(l.setup.Hosts)
	case failed != nil:
		l.log.Warn().Err(failed).Msg("etcd doesn't return the newest memory of the leader before")
	}
	if missing > 0 {
		l.log.Warn().Msgf("%s of the memory of the leader before is missing: times of these hosts and users start again", render.Plural(missing, "part"))
	}
	if hold := memory.Operator.Hold; hold != nil {
		l.log.Warn().Msg(hold.String())
	}
	return memory
}

// save returns what keeps the memory as it is now, on the disk and for the next leader.
func (l *loop) save(m *controller.FleetMemory) (write func()) {
	disk := l.memory.save(m)
	if l.part == nil {
		return disk
	}
	publish := l.publish(m)
	return func() {
		if err := publish(); err != nil {
			l.log.Warn().Err(err).Msg("the memory could not be kept in etcd: another controller that takes over would start times again")
		}
		disk()
	}
}

// keep keeps what operators asked for.
func (l *loop) keep(state operator.State) error {
	if err := l.memory.keep(state); err != nil || l.part == nil {
		return err
	}
	memory := l.current.Memory
	memory.Operator = state
	if err := l.publish(&memory)(); err != nil {
		return fmt.Errorf("another controller that takes over doesn't know of it: %w", err)
	}
	return nil
}

// publish returns what keeps the memory as it is now in etcd. It gives up early while etcd
// doesn't answer.
func (l *loop) publish(m *controller.FleetMemory) func() error {
	documents, err := handover.Encode(m, l.program.Now())
	epoch := l.part.epoch
	return func() error {
		status := l.part.Status()
		if err != nil || status.Role != election.Leading || status.Epoch != epoch || status.Err != nil {
			return err // nothing is to be kept, or the election says why it can't be
		}
		ctx, cancel := context.WithTimeout(context.Background(), publishWithin)
		defer cancel()
		err := l.part.publisher.Publish(ctx, epoch, documents)
		if errors.Is(err, handover.ErrReplaced) {
			return nil // the election says it soon
		}
		if err == nil {
			l.part.written.Store(&writing{epoch, l.program.Now()})
		}
		if err == nil && documents.TooLong > 0 {
			err = fmt.Errorf("%s would be longer than etcd takes", render.Plural(documents.TooLong, "part"))
		}
		return err
	}
}
