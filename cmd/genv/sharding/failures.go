package sharding

import (
	"errors"
	"os/exec"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// A process that ended by itself is started again after a second, and then after twice as long
// each time, unless it ran for a while.
const (
	restartAfter = time.Second
	restartMost  = 32 * time.Second
	settled      = time.Minute
)

// failure is what is known of a shard whose process ended by itself.
type failure struct {
	count int
	until time.Time // when the next one is started
}

func (r *run) failed(shard int, err error) {
	f := r.failures[shard]
	if f == nil {
		f = new(failure)
		r.failures[shard] = f
	}
	pause := min(restartAfter<<min(f.count, 10), restartMost)
	f.count++
	f.until = time.Now().Add(pause)
	r.Log.Error().Int("shard", shard).AnErr("ended", err).Msgf("the process of the shard ended: it is started again in %s", pause)
}

// collect notes which processes have ended.
func (r *run) collect() {
	for shard, p := range r.processes {
		select {
		case err := <-p.ended:
			delete(r.processes, shard)
			if p.stopping {
				continue
			}
			if replaced(err) {
				r.lost(shard)
				continue
			}
			if time.Since(p.started) > settled {
				delete(r.failures, shard)
			}
			r.failed(shard, err)
		default:
		}
	}
}

// replaced reports whether a process ended since most of its hosts refused it.
func replaced(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == command.ExitReplaced
}

// lost leaves a shard without a process: hosts would refuse a restarted one, or it would take the
// hosts back. The other shards go on.
func (r *run) lost(shard int) {
	r.replaced[shard] = true
	r.exit = max(r.exit, command.ExitReplaced)
	r.Log.Error().Int("shard", shard).Msg("most hosts of the shard refuse this controller. It leaves the shard alone until it is restarted. Stop the other controller; if the hosts still refuse, start this one once with --take-over")
}

// allReplaced reports whether there is nothing left for this controller to do, or to stand by for.
func (r *run) allReplaced() bool {
	for shard := range r.with {
		if !r.replaced[shard] {
			return false
		}
	}
	return len(r.replaced) > 0
}
