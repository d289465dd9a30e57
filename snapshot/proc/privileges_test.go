package proc_test

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// asNobody calls do on a thread of the user nobody, which ends afterwards.
func asNobody(t *testing.T, do func()) {
	t.Helper()
	const nobody = 65534
	var errno syscall.Errno
	onItsOwnThread(func() {
		if _, _, errno = syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); errno == 0 {
			do()
		}
	})
	require.Zero(t, errno)
}

// onItsOwnThread calls do on a thread that ends with it. The first thread never
// ends, and /proc shows its owner as that of the process, so it is passed over.
func onItsOwnThread(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if syscall.Gettid() != syscall.Getpid() {
			do()
			return
		}
		defer runtime.UnlockOSThread()
		onItsOwnThread(do) // on another one, since this one is held
	}()
	<-done
}
