// Package proc reads what the kernel says of processes in /proc: who owns
// them, when they started, what they were started with. Its root is injected,
// so that tests can build one in a folder.
//
//	p, err := proc.FS{}.Open(pid)
//	if err != nil {
//		return err // proc.ErrGone, or why it could not be looked at
//	}
//	defer p.Close()
//	stat, err := p.Stat()
//	eid, found, err := p.Environ("GENV_ENVIRONMENT_ID")
//
// A Process is a handle: everything that is read through it is of one process,
// even if the kernel gives its PID to another one meanwhile. Every answer is yes,
// no, or unknown, and unknown is an error of its own (ErrUnreadable), never a "no".
// For an environment that its process has overwritten it is ErrOverwritten as well.
//
// The package signals nothing and writes nothing. The facts are from proc(5),
// Documentation/filesystems/proc.rst and fs/proc of the kernel.
package proc
