package localhost

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"time"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// StateFiles leave out what has ended. Devices may not be registered yet.
func (h *Host) StateFiles(ctx context.Context) (state.Files, error) {
	return allowNoDevices(h.Store.Read(ctx))
}

// RawStateFiles include what has ended.
func (h *Host) RawStateFiles(ctx context.Context) (state.Files, error) {
	return allowNoDevices(h.Store.ReadRaw(ctx))
}

func allowNoDevices(files state.Files, err error) (state.Files, error) {
	if errors.Is(err, state.ErrNoDevices) {
		err = nil
	}
	return files, err
}

// Devices are the state files with this host's devices. nvidia-smi is slow: it is asked only if no devices are
// registered, or if the driver has more.
func (h *Host) Devices(ctx context.Context, raw bool) (state.Files, error) {
	read := h.Store.Read
	if raw {
		read = h.Store.ReadRaw
	}
	files, err := read(ctx)
	unregistered := errors.Is(err, state.ErrNoDevices)
	if err != nil && !unregistered {
		return files, err
	}
	if !unregistered && hardware.Count(h.Machine.Hardware.Proc) <= len(files.Devices) {
		return files, nil
	}
	found, err := h.Machine.ListDevices(ctx)
	if err != nil && unregistered {
		return files, err
	}
	if err != nil {
		files.Warnings = append(files.Warnings, "this host has GPUs that are not listed: "+err.Error())
		return files, nil
	}
	if files, err = h.Store.RegisterDevices(ctx, found); err != nil || !raw {
		return files, err
	}
	return read(ctx)
}

const (
	// DefaultAuditLog is the record of root's genv on a host.
	DefaultAuditLog = "/var/log/genv/audit.jsonl"

	lookEvery = 10 * time.Second // on a host without a queue
)

// HostLog is the audit log that this process writes; empty for none. Users other than root have one only by
// GENV_AUDIT_LOG.
func HostLog(getenv func(string) string) string {
	if getenv("GENV_AUDIT_LOG") == "" && os.Geteuid() != 0 {
		return ""
	}
	return RootLog(getenv)
}

// RootLog is the audit log that root's genv writes; empty for none.
func RootLog(getenv func(string) string) string {
	path := cmp.Or(getenv("GENV_AUDIT_LOG"), DefaultAuditLog)
	if path == "off" {
		return ""
	}
	return path
}

// ErrContained is about changes from a container that genv's runtime started.
var ErrContained = errors.New("genv only shows what this container has, which it keeps until it ends: run this on " +
	"the host itself")

// CheckContained returns ErrContained in such a container. Its variable is no proof: the state files are mounted
// read-only, and root's service checks itself.
func CheckContained(getenv func(string) string) error {
	if contained(getenv) {
		return ErrContained
	}
	return nil
}

func contained(getenv func(string) string) bool { return getenv(grant.Contained) != "" }

// Change makes a change for this process's user, by root's service if it owns the state. Errors are those of
// service.Changer and service.Client: nothing has changed, except after service.ErrUnknown or an error of the disk that
// says so. A retry does no harm.
func (h *Host) Change(ctx context.Context, c change.Change) (change.Result, error) {
	if h.contained {
		return change.Result{}, ErrContained
	}
	by := service.Changer{Store: h.Store, Instances: h.Instances, ListDevices: h.Machine.ListDevices}
	var result change.Result
	var err error
	if h.Store.MayWrite() {
		result, err = by.Change(ctx, c, h.asker(ctx))
	} else {
		result, err = h.Service.Change(ctx, c)
	}
	if err == nil && (c.Enter != nil || c.Attach != nil) {
		h.awaitGuard(ctx, result.Now)
	}
	return result, err
}

// ChangeInTurn makes a change that attaches a number of GPUs, in turn. Root's service keeps the queue, and calls tell
// with the place in it, or nil while the service is away. Other hosts make the change when enough GPUs are free, and
// call tell with nil each time they aren't.
func (h *Host) ChangeInTurn(
	ctx context.Context, c change.Change, tell func(*service.QueuePlace),
) (result change.Result, err error) {
	switch served, err := h.Served(); {
	case h.contained:
		return change.Result{}, ErrContained
	case err != nil:
		return change.Result{}, err
	case !served:
		return h.changeWhenFree(ctx, c, tell)
	}
	result, err = h.Service.Wait(ctx, service.WaitRequest{ID: rand.Text(), Change: &c}, tell)
	if err == nil {
		h.awaitGuard(ctx, result.Now)
	}
	return result, err
}

// Served reports whether root's service owns the state, and keeps a queue.
func (h *Host) Served() (bool, error) {
	owner, err := h.Store.Owner()
	return owner != nil, err
}

func (h *Host) changeWhenFree(ctx context.Context, c change.Change, tell func(*service.QueuePlace)) (
	change.Result, error,
) {
	for {
		s, err := h.Machine.Snapshot(ctx)
		if err != nil {
			return change.Result{}, err
		}
		free := []snapshot.DeviceIndex{}
		for _, g := range gpus.Of(s) {
			if g.State == gpus.Free {
				free = append(free, g.Index)
			}
		}
		files := state.Files{Devices: s.Devices, Environments: s.Environments}
		wanted, err := c.Wanted(&files, h.UID(ctx))
		if err != nil || files.CheckRequest(wanted) != nil {
			return h.Change(ctx, c) // its error says why
		}
		if result, err := h.Change(ctx, c.Within(free)); !errors.Is(err, state.ErrUnavailable) {
			return result, err
		}
		tell(nil)
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return change.Result{}, context.Cause(ctx)
		}
	}
}

// awaitGuard waits up to a second until the kernel guard, if any, lets this user open GPUs.
func (h *Host) awaitGuard(ctx context.Context, now []snapshot.DeviceIndex) {
	if len(now) > 0 {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		guard.Await(ctx, h.Machine.Hardware.Run, h.UID(ctx), now)
	}
}

// UID is the account of this process as reported by the kernel; LOGNAME is only a claim.
func (h *Host) UID(ctx context.Context) snapshot.UID {
	return h.Machine.Proc.AllAccounts().Resolve(ctx, snapshot.UID(os.Getuid()))
}

func (h *Host) asker(ctx context.Context) change.Requester {
	return change.Requester{
		UID: h.UID(ctx), PID: snapshot.PID(os.Getpid()), Now: snapshot.DateOf(h.Machine.Now()),
		Owner:    h.Machine.Proc.UID,
		Username: func(uid snapshot.UID) snapshot.Username { return cmp.Or(system.Username(ctx, uid), h.Unnamed) },
		Lacks:    func(uid snapshot.UID) bool { return h.Lacks(ctx, uid) },
	}
}

// Lacks reports that a uid certainly has no account here, and so gets no environment. Simulated hosts need none.
func (h *Host) Lacks(ctx context.Context, uid snapshot.UID) bool {
	return !h.simulated && h.Machine.Proc.AllAccounts().Lacks(ctx, uid)
}

// StartOf is the start time of a process, 0 after its end. ok is false if that is unknown.
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
