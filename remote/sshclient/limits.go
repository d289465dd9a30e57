package sshclient

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
)

// jitter is 75 to 125 per cent of d, so that many waits don't end together.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1) //nolint:gosec // spreads load, guards no secret
}

// How many logins may be under way to one address, and through one jump host
// (sshd_config(5), MaxStartups).
const (
	dialsPerAddress = 8
	dialsPerJump    = 32
)

// dialLimits limit the logins under way, by the name of an address or jump host.
type dialLimits struct{ slots sync.Map } // of chan struct{}

// acquire waits for a slot and returns how to release it.
func (d *dialLimits) acquire(ctx context.Context, name string, limit int) (release func(), err error) {
	value, _ := d.slots.LoadOrStore(name, make(chan struct{}, limit))
	slots := value.(chan struct{})
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// spareDescriptors are for files, agents and child processes.
const spareDescriptors = 128

// EnoughDescriptors returns an error if the limit of open files is too low for
// connections to that many hosts. Package os has raised the soft limit to the hard
// limit before.
func EnoughDescriptors(hosts int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return remote.Errorf(remote.Configuration, "cannot read the limit of open files: %w", err)
	}
	need := uint64(hosts) + spareDescriptors
	if limit.Cur >= need {
		return nil
	}
	return remote.Errorf(remote.Configuration, "%d hosts need %d open files and the limit is %d: run `ulimit -n %d` first", hosts, need, limit.Cur, need)
}
