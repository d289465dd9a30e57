package service_test

import (
	"bufio"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// A user with subordinate uids (subuid(5)) has no more connections than others.
func TestSubordinateUIDsCountForTheirUser(t *testing.T) {
	proctest.NeedRoot(t)
	t.Parallel()
	h := newHost(t, 1)
	listener, err := service.Listen(h.socket)
	require.NoError(t, err)
	const first, users = 100_000, 6
	server := &service.Server{
		Backend: h, Bounds: service.Bounds{Connections: users, PerUser: 2, Send: time.Minute}, Genv: "test", Now: time.Now,
		Username: func(context.Context, snapshot.UID) snapshot.Username { return "" },
		Owner: func(uid snapshot.UID) snapshot.UID {
			if uid >= first {
				return mallory
			}
			return uid
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	sit := func(uid int) {
		sitting := child(t, uid, "sit", h.socket, "1")
		output, err := sitting.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, sitting.Start())
		t.Cleanup(func() { _ = sitting.Process.Kill(); _ = sitting.Wait() })
		_, err = bufio.NewReader(output).ReadString('\n')
		require.NoError(t, err)
	}
	sit(mallory)
	for i := range users {
		sit(first + i)
	}
	sit(alice)
	status, err := service.Client{Path: h.socket, Retry: time.Second}.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, 4, status.Connections, "two of mallory, one of alice, and this one")
	require.EqualValues(t, users-1, status.Refused)
	cancel()

	t.Cleanup(func() { require.NoError(t, <-done) }) // after those who sit have ended
}
