package rootless

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/container/record"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// Asked is what is asked for a container: one of Claim, Init and Ended is set.
type Asked struct {
	ID      string         `json:"id"`
	Runtime string         `json:"runtime,omitempty"` // "docker", for example; empty if unknown
	Claim   *grant.Request `json:"claim,omitempty"`   // it is about to be created by the process that asks
	Init    snapshot.PID   `json:"init,omitempty"`    // it has this first process now
	Ended   bool           `json:"ended,omitempty"`
}

// Asker is who asks, as the kernel reports it.
type Asker struct {
	UID snapshot.UID // the user for whom the process counts, never root
	PID snapshot.PID
	// Owner is the user for whom a process counts. Its error says that it has ended.
	Owner func(snapshot.PID) (snapshot.UID, error)
	// Turn waits for the turn of the user at the state files.
	Turn func(context.Context) (release func(), err error)
}

// check refuses what no runtime asks for. Its error wraps state.ErrRequest.
func (a *Asked) check() error {
	asked := 0
	for _, set := range []bool{a.Claim != nil, a.Init != 0, a.Ended} {
		if set {
			asked++
		}
	}
	switch {
	case !record.IsID(a.ID):
		return fmt.Errorf("%w: the container's id is not 64 hexadecimal digits", state.ErrRequest)
	case asked != 1 || a.Init < 0:
		return fmt.Errorf("%w: a container is claimed, has begun or has ended", state.ErrRequest)
	case a.Claim == nil:
		return nil
	}
	if err := a.Claim.Check(); err != nil {
		return fmt.Errorf("%w: %w", state.ErrRequest, err)
	}
	return nil
}

// InUserNamespace says whether this process is root only in the namespace of a user, as the
// processes of a rootless engine are: the owner of "/" is not root there.
func InUserNamespace() bool {
	info, err := os.Stat("/")
	if err != nil || os.Geteuid() != 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid != 0
}
