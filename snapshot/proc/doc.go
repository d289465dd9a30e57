// Package proc reads /proc: the owner of a process, when it started, its environment,
// container and ancestors. The mount point is injected, so that tests can use a folder.
//
//	h, err := proc.FS{}.Open(pid)
//	if err != nil {
//		return err // wraps proc.ErrGone or proc.ErrUnreadable
//	}
//	defer h.Close()
//	stat, err := h.Stat()
//	eid, found, err := h.Environ("GENV_ENVIRONMENT_ID")
//
// Everything that is read through a Handle belongs to one process, even if the kernel
// gives its PID to another process meanwhile. An answer may be unknown, which is the
// error ErrUnreadable and never a "no". If a process has overwritten its environment,
// the error is also ErrOverwritten.
//
// ParsePlace finds the container that a process is in by the names of its cgroups. It is pure and
// asks no runtime: a name is a claim where a user may have made the cgroup (Place.Delegated).
//
// The package sends no signals and writes nothing. Its facts are from proc(5),
// Documentation/filesystems/proc.rst and fs/proc of the kernel.
package proc
