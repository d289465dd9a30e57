package service_test

import (
	"context"
	"encoding/json"
	"fmt"
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
	h := rootHost(t, 1)
	listener := proctest.Try(service.Listen(h.socket)).OK(t)
	begun, later := time.Now().Round(0), atomic.Int64{}
	run := t.TempDir()
	server := &service.Server{
		Run:     run,
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

	const cap1, cap2 = `{"name":"max-devices-per-user","counts":"gpus","gpus":[0]}`, `{"name":"vision","counts":"gpus","together":true}`
	const caps = `"caps":[` + cap1 + `,` + cap2 + `]`
	all := fmt.Sprintf(`{"by": "x", %s, "people": {"%d": {"caps": [{"cap": 0, "limit": 2, "gpus": [0]}, {"cap": 1, "limit": 3, "gpus": [0, 1]}]}, "%d": {"caps": [{"cap": 0, "limit": 1}]}}, "for_ms": 60000`, caps, alice, mallory)
	require.Contains(t, as(mallory, 0, `{"by": "y", "for_ms": 60000}`), "only root says")
	require.Contains(t, as(0, syscall.CLONE_NEWPID, `{"by": "y", "for_ms": 60000}`), "only root says", "root of a container is not root of the host")
	require.Equal(t, unknown, as(alice, 0), "it is still unknown")
	require.Empty(t, as(0, 0, all+"}"))
	since := begun.Format(time.RFC3339Nano)
	hers := fmt.Sprintf(`{"by":"x",%s,"people":{"%d":{"caps":[{"cap":0,"limit":2,"gpus":[0]},{"cap":1,"limit":3}]}},"since":"%s","for_ms":60000}`, caps, alice, since)
	require.Equal(t, hers, as(alice, 0), "and nothing of others but sums")
	require.Equal(t, fmt.Sprintf(`{"by":"x",%s,"people":{"%d":{"caps":[{"cap":0,"limit":1}]}},"since":"%s","for_ms":60000}`, caps, mallory, since), as(mallory, 0))
	require.NotContains(t, as(5000, 0), "people", "nothing is known of this user")
	asked := proctest.Try(service.AskedNote.Read(run)).OK(t)
	require.Equal(t, []snapshot.Asker{{UID: 5000}}, asked.People, "the controller hears of that")
	require.Equal(t, unknown, as(0, syscall.CLONE_NEWPID), "the uid of a container proves no user")

	require.Contains(t, as(0, 0), `"people":{"0":{}}`, "nothing holds for root")

	later.Store(int64(59 * time.Second))
	hers = strings.Replace(hers, `"for_ms":60000`, `"for_ms":60000,"age_ms":59000`, 1)
	require.Equal(t, hers, as(alice, 0))
	require.Empty(t, as(0, 0, `{"by": "here", "one_host": true, "for_ms": 60000}`))
	require.Equal(t, hers, as(alice, 0), "genv enforce doesn't replace what a controller of a fleet said")
	later.Store(int64(time.Minute))
	require.Equal(t, fmt.Sprintf(`{"by":"x",%s,"since":"%s","expired":true,"age_ms":60000}`, caps, begun.Add(time.Minute).Format(time.RFC3339Nano)), as(alice, 0), "it wasn't renewed")
	require.Empty(t, as(0, 0, strings.Replace(all, "60000", "9223372036854775807", 1)+`, "one_host": true}`))
	require.Contains(t, as(alice, 0), `"one_host":true`)
	require.Empty(t, as(0, 0, all+"}"))
	require.NotContains(t, as(alice, 0), `"one_host":true`, "a controller replaces what genv enforce said")
	later.Store(int64(25 * time.Hour))
	require.Contains(t, as(alice, 0), `"expired":true`, "it holds for a day at most")
}
