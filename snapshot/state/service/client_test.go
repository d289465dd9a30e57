package service_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

func TestTheClientsErrors(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	leave := change.Change{Leave: &change.Leave{Kernel: "k"}}
	_, err := h.client().Change(t.Context(), leave)
	require.ErrorIs(t, err, service.ErrNotRunning)
	require.ErrorContains(t, err, "systemctl start genv-host")

	listener, err := net.Listen("unix", h.socket)
	require.NoError(t, err)
	defer listener.Close()
	answer := make(chan string, 1)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(conn).ReadString('\n')
			fmt.Fprint(conn, <-answer)
			_ = conn.Close()
		}
	}()
	for _, lost := range []string{"", `{"version":1,`, "garbage\n", "{}\n"} {
		answer <- lost
		_, err = h.client().Change(t.Context(), leave)
		require.ErrorIs(t, err, service.ErrUnknown, lost)
		require.ErrorContains(t, err, "genv status")
	}
	answer <- fmt.Sprintf(`{"error":%s}`+"\n", change.EncodeError(fmt.Errorf("%w: it is bob's", state.ErrNotOwner)))
	_, err = h.client().Change(t.Context(), leave)
	require.ErrorIs(t, err, state.ErrNotOwner)
	busy := h.client()
	busy.Retry = time.Millisecond
	answer <- `{"busy":true,"error":{"text":"too many requests from uid 7, try again"}}` + "\n"
	go func() { answer <- `{"busy":true,"error":{"text":"too many requests from uid 7, try again"}}` + "\n" }()
	_, err = busy.Change(t.Context(), leave)
	require.ErrorIs(t, err, service.ErrBusy)
	require.ErrorContains(t, err, "too many requests from uid 7, try again")
}

// A socket of systemd's on which the service doesn't serve yet.
func TestAServiceThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	listener, err := net.Listen("unix", h.socket)
	require.NoError(t, err)
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = h.client().Status(ctx)
	require.ErrorContains(t, err, "systemctl status genv-host")
}
