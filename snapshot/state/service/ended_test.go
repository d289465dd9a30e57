package service_test

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// A connection of a process that has ended is not served: with the uids of a user namespace
// one user could otherwise be counted as thousands.
func TestAConnectionThatOutlivesItsProcess(t *testing.T) {
	proctest.NeedRoot(t)
	t.Parallel()
	h := newHost(t, 1)
	listener, err := service.Listen(h.socket) // it accepts later
	require.NoError(t, err)
	const users = 8
	for i := range users {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		conn := os.NewFile(uintptr(fd), "connection")
		t.Cleanup(func() { _ = conn.Close() })
		connecting := child(t, 1_500_000_000+i, "connect", h.socket)
		connecting.Stdin = conn
		output, err := connecting.CombinedOutput()
		require.NoError(t, err, string(output))
	}
	server := &service.Server{
		Backend: h, Bounds: service.Bounds{Connections: users, PerUser: 2, Send: time.Minute}, Genv: "test", Now: time.Now,
		Username: func(context.Context, snapshot.UID) snapshot.Username { return "" },
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	status, err := service.Client{Path: h.socket, Retry: time.Second}.Status(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, status.Connections, 1)
	cancel()
	require.NoError(t, <-done)
}
