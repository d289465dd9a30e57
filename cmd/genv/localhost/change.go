package localhost

import (
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// ErrContained says that nothing of the host can be changed from a container that genv's runtime
// started: it keeps what it has until it ends.
var ErrContained = errors.New("genv only shows what this container has, which it keeps until it ends: run this on the host itself")

// CheckContained returns ErrContained in such a container. What its variable says is no proof:
// the state files are mounted read-only, and root's service looks itself.
func CheckContained(getenv func(string) string) error {
	if contained(getenv) {
		return ErrContained
	}
	return nil
}

func contained(getenv func(string) string) bool { return getenv(grant.Contained) != "" }

// Change makes a change for the user of this process: by root's service where the state
// belongs to root, and otherwise itself. After an error, which is described at
// service.Changer and service.Client, nothing has changed, unless it is service.ErrUnknown, or
// one of the disk that says that this is unknown. To ask for the same again does no harm.
func (h *Host) Change(ctx context.Context, c change.Change) (change.Result, error) {
	if h.contained {
		return change.Result{}, ErrContained
	}
	if !h.Store.MayWrite() {
		return h.Service.Change(ctx, c)
	}
	return service.Changer{Store: h.Store, Instances: h.Instances, ListDevices: h.Machine.ListDevices}.Change(ctx, c, h.asker(ctx))
}

// asker is the user of this process.
func (h *Host) asker(ctx context.Context) change.Asker {
	return change.Asker{
		UID: snapshot.UID(os.Getuid()), PID: snapshot.PID(os.Getpid()), Now: snapshot.DateOf(h.Machine.Now()),
		Owner: h.Machine.Proc.UID,
		Username: func(uid snapshot.UID) snapshot.Username {
			return cmp.Or(system.Users{}.Username(ctx, uid), h.Unnamed)
		},
	}
}

// StartOf is the start time of a process, for record.Prune: 0 if it has ended. ok is false
// if that is unknown.
func (h *Host) StartOf(pid snapshot.PID) (start snapshot.StartTime, ok bool) {
	stat, err := h.Machine.Proc.Stat(pid)
	switch {
	case errors.Is(err, proc.ErrGone), err == nil && stat.Gone():
		return 0, true
	case err != nil:
		return 0, false
	}
	return stat.Start, true
}
