// Package nvidiasmi asks nvidia-smi which devices there are and which processes use
// them.
//
//	path, err := nvidiasmi.Find(os.Getenv("PATH"), self)
//	querier := nvidiasmi.New(nvidiasmi.Exec{Path: path}, 10*time.Second)
//	usage, err := querier.Apps(ctx)
//	if errors.Is(err, nvidiasmi.ErrHung) {
//		// the driver of this machine hangs: try again later
//	}
//
// A defective GPU can block nvidia-smi in the kernel for minutes, where even SIGKILL
// does not end it. So a Querier has at most one call in progress: its caller gets
// ErrTimeout at the deadline, and later callers get ErrHung until the call returns. A
// lock file (Exec.Lock) extends this to all genv processes of the machine, even after
// the one that started the call was killed.
//
// The parsers are pure. A value that the driver does not report, such as "[N/A]", is
// unknown and never 0. The package does not read /proc and does not know users: that is
// the work of snapshot/local.
//
// The facts are from nvidia-smi(1) and from the output of drivers.
package nvidiasmi
