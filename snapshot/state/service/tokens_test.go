package service_test

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// A token proves the user at the other end of the socket, once, and to root alone.
func TestTokensProveWhoAsked(t *testing.T) {
	proctest.NeedRoot(t)
	h := newHost(t, 1)
	_, stop := h.serve(t, service.Bounds{})
	ask := func(uid int, flags uintptr, args ...string) (string, error) {
		cmd := child(t, uid, "token", append([]string{h.socket}, args...)...)
		cmd.SysProcAttr.Cloneflags = flags
		output, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(output)), err
	}
	hers, err := ask(alice, 0, "10")
	require.NoError(t, err, hers)
	output, err := ask(mallory, 0, "", hers)
	require.Error(t, err)
	require.Contains(t, output, "only root's container runtime redeems tokens")
	output, err = ask(0, syscall.CLONE_NEWPID, "", hers)
	require.Error(t, err)
	require.Contains(t, output, "only root's container runtime", "root of a container is not root of the host")
	output, err = ask(0, 0, "", hers)
	require.NoError(t, err, output)
	require.Equal(t, "uid 4001 eid 10", output, "what others tried has not used it up")
	output, err = ask(0, 0, "", hers)
	require.Error(t, err)
	require.Contains(t, output, "the token was used before")

	output, err = ask(alice, syscall.CLONE_NEWPID, "10")
	require.Error(t, err, "a container can have processes of any uid")
	require.Contains(t, output, "another PID namespace")
	output, err = ask(alice, 0, "a\nb")
	require.Error(t, err)
	require.Contains(t, output, state.ErrRequest.Error())

	last, err := ask(alice, 0, "")
	require.NoError(t, err, last)
	stop()
	require.NoError(t, os.RemoveAll(h.socket))
	h.serve(t, service.Bounds{})
	_, err = h.client().Redeem(context.Background(), last)
	require.ErrorIs(t, err, state.ErrRequest, "it was of another service")
	_, err = h.client().Redeem(context.Background(), strings.Repeat("x", grant.MaxToken+1))
	require.ErrorIs(t, err, state.ErrRequest)
}
