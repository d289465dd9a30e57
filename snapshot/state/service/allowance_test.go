package service_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// allowanceChild is a child: SOCKET [ALLOWANCE], says what is allowed, or asks for its own.
func allowanceChild(args []string) error {
	client := service.Client{Path: args[0]}
	if len(args) > 1 {
		var a service.Allowance
		if err := json.Unmarshal([]byte(args[1]), &a); err != nil {
			return err
		}
		return client.Allow(context.Background(), a)
	}
	own, err := client.Allowance(context.Background())
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(own)
}

// TestAllowance: only root says what users may have, each user learns only what that user may have, and
// nothing once it isn't renewed.
func TestAllowance(t *testing.T) {
	proctest.NeedRoot(t)
	t.Parallel()
	h := newHost(t, 1)
	listener, err := service.Listen(h.socket)
	require.NoError(t, err)
	begun, later := time.Now(), atomic.Int64{}
	server := &service.Server{
		Backend: h, Proc: h.proc, Now: func() time.Time { return begun.Add(time.Duration(later.Load())) },
		Username: func(_ context.Context, uid snapshot.UID) snapshot.Username {
			return map[snapshot.UID]snapshot.Username{alice: "alice", mallory: "mallory"}[uid]
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	as := func(uid int, flags uintptr, args ...string) string {
		cmd := child(t, uid, "allowance", append([]string{h.socket}, args...)...)
		cmd.SysProcAttr.Cloneflags = flags
		output, _ := cmd.CombinedOutput() // it says why it failed
		return strings.TrimSpace(string(output))
	}
	const unknown = "null"
	require.Equal(t, unknown, as(alice, 0), "no controller said it")

	const all = `{"gpus": 2, "users": {"mallory": 0, "bob": null}, "for_ms": 60000}`
	require.Contains(t, as(mallory, 0, `{"gpus": 9, "for_ms": 60000}`), "only root says")
	require.Contains(t, as(0, syscall.CLONE_NEWPID, `{"gpus": 9, "for_ms": 60000}`), "only root says", "root of a container is not root of the host")
	require.Equal(t, unknown, as(alice, 0), "it is still unknown")
	require.Empty(t, as(0, 0, all))
	require.Equal(t, `{"gpus":2}`, as(alice, 0))
	require.Equal(t, `{"gpus":0}`, as(mallory, 0), "and nothing of others")
	require.Equal(t, unknown, as(5000, 0), "a user without a name may be one that the policy names")
	require.Equal(t, unknown, as(0, syscall.CLONE_NEWPID), "the uid of a container proves no user")

	later.Store(int64(59 * time.Second))
	require.Equal(t, `{"gpus":2}`, as(alice, 0))
	later.Store(int64(time.Minute))
	require.Equal(t, unknown, as(alice, 0), "it wasn't renewed")
	require.Empty(t, as(0, 0, `{"users": {"alice": 3}, "one_host": true, "for_ms": 9223372036854775807}`))
	require.Equal(t, `{"gpus":3,"one_host":true}`, as(alice, 0))
	require.Equal(t, `{"one_host":true}`, as(mallory, 0), "there is no cap, which is known")
	later.Store(int64(25 * time.Hour))
	require.Equal(t, unknown, as(alice, 0), "it holds for a day at most")
}
