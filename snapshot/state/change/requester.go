package change

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// Requester is who asks for a change, as the kernel and whoever applies it say: nothing is taken from a request.
type Requester struct {
	UID snapshot.UID
	// PID is the process that asks: it doesn't keep an environment that it leaves.
	PID snapshot.PID
	Now snapshot.Date
	// Owner is the account of a process. It is called under the lock of the state files.
	Owner func(snapshot.PID) (snapshot.UID, error)
	// Username is the name of a user; empty for none. It may take seconds: see Prepare.
	Username func(snapshot.UID) snapshot.Username
	// Lacks says that a uid certainly has no account: it gets no environment. Nil doesn't ask.
	Lacks func(snapshot.UID) bool
	// Reserved are the reservations of the host, at an Instant; nil refuses nothing. Used is who used GPUs lately.
	Reserved []snapshot.Reservation
	Instant  time.Time
	Used     map[snapshot.DeviceIndex][]snapshot.UID
	// Caps returns an error, which wraps state.ErrCap, if the policy doesn't allow the files after the change; entered
	// says that there is one environment more. Nil allows all.
	Caps func(f *state.Files, r *Result, entered bool) error
}

// Prepare looks up what takes too long for the lock. Its error is one that Apply would return.
func (c Change) Prepare(by Requester) (Requester, error) {
	if c.Enter == nil {
		return by, nil
	}
	uid, err := by.userOf(c.Enter.PID)
	if err != nil {
		return by, err
	}
	if by.Lacks != nil && by.Lacks(uid) {
		return by, state.Refuse("uid %d has no account on this host, so it gets no environment", uid)
	}
	name := by.Username(uid)
	by.Username = func(of snapshot.UID) snapshot.Username {
		if of != uid { // the process has become another one meanwhile
			return ""
		}
		return name
	}
	return by, nil
}

// userOf is the user for whom a process is registered: its owner, and for a kernel (PID 0) the asker. Only root may ask
// for another user's process.
func (by Requester) userOf(pid snapshot.PID) (snapshot.UID, error) {
	if pid == 0 {
		return by.UID, nil
	}
	owner, err := by.Owner(pid)
	if err != nil {
		return 0, err
	}
	if by.UID != 0 && owner != by.UID {
		return 0, fmt.Errorf("%w: process %d belongs to uid %d: only that user and root may activate it",
			state.ErrNotOwner, pid, owner)
	}
	return owner, nil
}
