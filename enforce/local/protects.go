package local

import "github.com/seed-3119e985/genv/snapshot"

// Protects is the name of the daemon by which a process would be refused, or ""
// when it would not; see Protected. It is for snapshots: no rule need speak of
// such a process.
func (x *Executor) Protects(pid snapshot.PID) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unprotected = x.options.Unprotected
	stat, err := x.proc().Stat(pid)
	if err != nil {
		return ""
	}
	uid, err := x.proc().UID(pid)
	if err != nil {
		return ""
	}
	return x.protectedName(stat, uid)
}
