package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// endWithin is how long a process of our own may take to end.
const endWithin = 5 * time.Second

// Try starts a helper that reads processes, and ends it as Execute does; nil where there is no helper.
func (x *Executor) Try() *snapshot.Trial {
	if x.proc().Reader == nil {
		return nil
	}
	t := &snapshot.Trial{}
	err := x.proc().Reader.Try(func(pid snapshot.PID) error {
		r, o := openProcess(x.proc(), pid)
		if o.raised() {
			return fmt.Errorf("a process of its own can't be opened: %s", o.reason)
		}
		defer r.close()
		lacks := r.pidfd == noPidfd || lacksPidfd(unix.PidfdSendSignal(r.pidfd, 0, nil, 0))
		if err := r.signal(unix.SIGKILL); err != nil {
			return fmt.Errorf("a process of its own can't be signalled: %w", err)
		}
		t.NoPidfds = lacks
		own := &target{judged: &snapshot.Process{PID: pid}, outcome: &order.Outcome{}, fd: r}
		left, err := wait(context.Background(), []*target{own}, endWithin, order.StatusKilled)
		if len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("a process of its own didn't end within %s of SIGKILL", endWithin))
		}
		return err
	})
	if err != nil {
		t.Unable = err.Error()
	}
	return t
}
