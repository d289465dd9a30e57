package container

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/container/record"
	"github.com/seed-3119e985/genv/snapshot/container/rootless"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// claimRootless has root's service give a container of a user's own engine its environment:
// this process is root only in a namespace of that user, and must not judge what it sees of
// the state files from there.
func (r *runtime) claimRootless(ctx context.Context, request grant.Request) (*claimed, error) {
	if request.Shims || request.Locks {
		return nil, errMounts
	}
	request.Token = "" // the kernel proves more
	done := &claimed{runtime: r, record: record.Record{ID: r.id, Proof: record.Rootless, Runtime: r.engineName()}}
	granted, err := r.host.Service.Container(ctx, rootless.Asked{ID: r.id, Runtime: done.record.Runtime, Claim: &request})
	if errors.Is(err, service.ErrNotRunning) {
		return nil, fmt.Errorf("containers of rootless engines get GPUs from root's service: %w", err)
	}
	if err != nil {
		return nil, err
	}
	done.Granted, done.record.UID = granted, granted.UID
	return done, nil
}

// errMounts is why nothing of genv is mounted into a rootless container.
var errMounts = fmt.Errorf("%w: --mount-shims and --mount-locks (GENV_MOUNT_SHIMS, GENV_MOUNT_LOCKS) don't work in containers of rootless engines, "+
	"where what root owns can't be told from what others do: leave them out", grant.ErrRefused)

// ofUser tells root's service about the start or the end of such a container.
func (h *hook) ofUser(ctx context.Context, what string) error {
	asked := rootless.Asked{ID: h.ID, Runtime: h.Runtime, Ended: what == hookStop}
	if what == hookStart {
		asked.Init = h.PID
	}
	_, err := h.host.Service.Container(ctx, asked)
	return err
}
