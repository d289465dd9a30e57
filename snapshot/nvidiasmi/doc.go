// Package nvidiasmi asks nvidia-smi which devices there are and which processes
// use them.
//
//	path, err := nvidiasmi.Find(os.Getenv("PATH"), self)
//	client := nvidiasmi.New(nvidiasmi.Exec{Path: path}, 10*time.Second)
//	usage, err := client.Apps(ctx)
//	if errors.Is(err, nvidiasmi.ErrHung) {
//		// leave this machine alone for now
//	}
//
// A sick GPU holds nvidia-smi in the kernel for minutes, and not even SIGKILL
// ends it there. So a Client has at most one call under way: the caller gets
// ErrTimeout at the deadline, and callers after it ErrHung until that call has
// come back. With a lock file (Exec.Lock) this is so for all genv processes of the
// machine, even after the one that started it was killed.
//
// The parsers are pure. A value that the driver would not tell ("[N/A]" and
// its like) is unknown, and never 0. The package attributes nothing to anybody
// and reads no /proc: that is the work of snapshot/local.
//
// The facts are from nvidia-smi(1) and from what drivers print.
package nvidiasmi
