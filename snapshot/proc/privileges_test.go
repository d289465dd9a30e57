package proc_test

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// dropPrivileges makes this test's own thread one of nobody's. The thread ends
// with the test, since it stays locked to it.
func dropPrivileges(t *testing.T) {
	t.Helper()
	const nobody = 65534
	runtime.LockOSThread()
	_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody)
	require.Zero(t, errno)
}
