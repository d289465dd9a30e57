package agent_test

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/agent/frame"
)

// FuzzHost: whatever a host says, an answer that is used is one that a host
// which keeps to the protocol has written, whole, for this question.
func FuzzHost(f *testing.F) {
	hello := agent.Greet("t", greeting)
	good := agent.Frame(frame.KindAnswer, "", 1, []byte("yes"))
	f.Add(append(bytes.Clone(hello), good...))
	f.Add(append([]byte("motd\n"), append(hello, good...)...))
	f.Add(append(bytes.Clone(hello), agent.Frame(frame.KindRefusal, "", 1, []byte("no"))...))
	f.Add(append(bytes.Clone(hello), agent.Frame(frame.KindAnswer, "", 2, nil)...))
	f.Add(hello[:len(hello)-2])
	f.Add([]byte("\ngenv-serve t\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		in, out := agent.Scripted(said, hello)
		c, err := agent.OpenStream(t.Context(), in, out, "t")
		if err != nil {
			return
		}
		require.Contains(t, string(append([]byte("\n"), said...)), "\ngenv-serve t\n")
		answer, err := c.Call(t.Context(), "q", nil)
		if err == nil {
			require.True(t, bytes.Contains(said, agent.Frame(frame.KindAnswer, "", 1, answer)) || bytes.Contains(said, answer))
		}
	})
}

// FuzzController: whatever a controller says, the host's end comes to its own
// end, and answers just what it was asked, in order.
func FuzzController(f *testing.F) {
	one := agent.Frame(frame.KindRequest, "echo", 1, []byte("a"))
	two := agent.Frame(frame.KindRequest, "no", 2, nil)
	f.Add(append(bytes.Clone(one), two...))
	f.Add(append(bytes.Clone(one), one...))
	f.Add(one[:len(one)-1])
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		var out bytes.Buffer
		server := &agent.Responder{Token: "t", Greeting: greeting, Handler: echo{make(chan string, 64)}.Handle, Idle: time.Minute}
		err := server.Serve(t.Context(), bytes.NewReader(said), &out)
		if err != nil {
			require.ErrorIs(t, err, frame.ErrProtocol)
		}
		c, err := agent.OpenStream(t.Context(), &out, io.Discard, "t")
		require.NoError(t, err, "it greets whatever comes")
		require.Equal(t, greeting, c.Greeting)
	})
}

// A leader that is elected again doesn't take hosts back from one that took them over since.
func TestAHostIsTakenOverOnce(t *testing.T) {
	file := &fence.LeaseFile{Path: filepath.Join(t.TempDir(), "note.json"), Now: time.Now}
	pool := (&scripted{capabilities: agent.NewGreeting("v", agent.CapabilityFence).Capabilities, fence: file}).pool()
	defer pool.Close()
	ask := func(epoch uint64) error {
		claim := leader(epoch)
		claim.TakeOver = true
		pool.Lease(claim)
		_, err := pool.Snapshot(t.Context(), remote.Host{Name: "a"})
		return err
	}
	require.NoError(t, ask(1))
	require.NoError(t, file.Admit(&fence.LeaseRequest{Who: fence.Folder("f"), Epoch: 1, Controller: "f", TakeOver: true}))
	pool.Lease(nil)
	require.Equal(t, remote.Replaced, remote.ClassOf(ask(2)))
}

// TestTheEndOfAWarning: a host with an older genv, which would show it as a message, isn't sent it.
func TestTheEndOfAWarning(t *testing.T) {
	for name, more := range map[string][]string{"older": nil, "present": {agent.CapabilityOver}} {
		notified := 0
		host := &scripted{
			capabilities: append([]string{agent.RequestSnapshot, agent.RequestNotify, agent.RequestPing}, more...), notify: func() { notified++ },
		}
		pool := host.pool()
		_, err := pool.Snapshot(t.Context(), remote.Host{Name: "a"})
		require.NoError(t, err)
		_, err = pool.Notify(t.Context(), remote.Host{Name: "a"}, []agent.Message{{UID: 1, IDs: []string{"x"}, Over: true}})
		require.NoError(t, err, name)
		pool.Close()
		require.Equal(t, len(more), notified, name)
	}
}

// What a host says about its guard is one printable line each, of bounded length.
func TestTextsOfAHost(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	state := agent.GuardAnswer{State: agent.GuardState{
		Mode: 9, Reason: "off\x1b]0;title\a\nUser alice was warned", Problems: []string{"a\rb", "\u202ec", long, "\xff"},
	}}.Bounded().State
	require.Equal(t, guard.Off, state.Mode)
	for _, said := range append(state.Problems, state.Reason) {
		require.LessOrEqual(t, len(said), 1024)
		require.NotContains(t, said, "\x1b")
		require.NotContains(t, said, "\n")
		require.NotContains(t, said, "\u202e")
	}
	require.Equal(t, "a b", state.Problems[0])
}
