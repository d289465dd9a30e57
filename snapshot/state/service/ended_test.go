package service_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// A connection of a process that has ended is not served: with the uids of a user namespace
// one user could otherwise be counted as thousands.
func TestAConnectionThatOutlivesItsProcess(t *testing.T) {
	proctest.NeedRoot(t)
	h := newHost(t, 1)
	listener, err := service.Listen(h.socket) // it accepts later
	require.NoError(t, err)
	const users = 8
	connect := func(uid int) {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		conn := os.NewFile(uintptr(fd), "connection")
		t.Cleanup(func() { _ = conn.Close() })
		connecting := child(t, uid, "connect", h.socket)
		connecting.Stdin = conn
		output, err := connecting.CombinedOutput()
		require.NoError(t, err, string(output))
	}
	for i := range users {
		connect(1_500_000_000 + i)
		connect(mallory)
	}
	h.serveOn(t, listener, service.Bounds{Connections: 2 * users, PerUser: users, Burst: users, Rate: 1e-6, Send: time.Minute})
	require.Eventually(t, func() bool {
		status, err := h.client().Status(t.Context())
		require.NoError(t, err)
		return status.Connections == 1
	}, 10*time.Second, time.Second, "each look is one of the few requests that root has, too")
	require.Contains(t, h.ask(t, mallory, `{"enter":{"eid":"a","pid":PID}}`)[0], "too many requests", "they cost credit")
}
