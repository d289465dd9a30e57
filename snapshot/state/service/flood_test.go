package service_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// crowdChild is a child: SOCKET, fills the queue of the socket again and again, until it is killed.
func crowdChild(args []string) error {
	for open := make([]int, 0, 900); ; open = open[:0] {
		for len(open) < cap(open) {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				break
			}
			_ = unix.Connect(fd, &unix.SockaddrUnix{Name: args[0]}) // the queue may be full
			open = append(open, fd)
		}
		for _, fd := range open {
			_ = unix.Close(fd)
		}
	}
}

// Who fills the queue of the socket all the time keeps no other user out of it: others wait in it, instead of asking whether
// there is room.
func TestACrowdedSocket(t *testing.T) {
	h := serving(t, 1)
	ask := func() (slowest, sum time.Duration) {
		for range 20 {
			began := time.Now()
			proctest.Try(h.client().Status(t.Context())).OK(t)
			took := time.Since(began)
			slowest, sum = max(slowest, took), sum+took
		}
		return slowest, sum / 20
	}
	for crowds := range 3 {
		slowest, mean := ask()
		t.Logf("%d crowds: a request takes %v, at most %v", crowds, mean, slowest)
		crowd := child(t, mallory, "crowd", h.socket)
		proctest.Start(t, crowd)
		time.Sleep(200 * time.Millisecond)
	}
}

// A client waits until there is room in the queue of the socket, or until it is interrupted.
func TestAFullQueue(t *testing.T) {
	h := newHost(t, 1)
	listener := proctest.Try(service.Listen(h.socket)).OK(t)
	raw := proctest.Try(listener.SyscallConn()).OK(t)
	require.NoError(t, raw.Control(func(fd uintptr) { _ = unix.Listen(int(fd), 0) }))
	full := func() error {
		fd := proctest.Try(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)).OK(t)
		t.Cleanup(func() { _ = unix.Close(fd) })
		return unix.Connect(fd, &unix.SockaddrUnix{Name: h.socket})
	}
	require.NoError(t, full())
	require.ErrorIs(t, full(), syscall.EAGAIN)
	client := service.Client{Path: h.socket, Retry: time.Nanosecond}
	interrupted, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, interrupt)
	require.ErrorIs(t, proctest.Try(client.Status(interrupted)).Err, context.Canceled)
	time.AfterFunc(50*time.Millisecond, func() { h.serveOn(t, listener, service.Bounds{}) })
	proctest.Try(client.Status(t.Context())).OK(t)
}
