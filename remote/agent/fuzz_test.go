package agent_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/agent"
)

// FuzzHost: whatever a host says, an answer that is used is one that a host
// which keeps to the protocol has written, whole, for this question.
func FuzzHost(f *testing.F) {
	hello := agent.Greet("t", greeting)
	good := agent.Frame(agent.KindAnswer, "", 1, []byte("yes"))
	f.Add(append(bytes.Clone(hello), good...))
	f.Add(append([]byte("motd\n"), append(hello, good...)...))
	f.Add(append(bytes.Clone(hello), agent.Frame(agent.KindRefusal, "", 1, []byte("no"))...))
	f.Add(append(bytes.Clone(hello), agent.Frame(agent.KindAnswer, "", 2, nil)...))
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
			require.True(t, bytes.Contains(said, agent.Frame(agent.KindAnswer, "", 1, answer)) || bytes.Contains(said, answer))
		}
	})
}

// FuzzController: whatever a controller says, the host's end comes to its own
// end, and answers just what it was asked, in order.
func FuzzController(f *testing.F) {
	one := agent.Frame(agent.KindRequest, "echo", 1, []byte("a"))
	two := agent.Frame(agent.KindRequest, "no", 2, nil)
	f.Add(append(bytes.Clone(one), two...))
	f.Add(append(bytes.Clone(one), one...))
	f.Add(one[:len(one)-1])
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		var out bytes.Buffer
		server := agent.Server{Token: "t", Greeting: greeting, Handler: echo{make(chan string, 64)}, Idle: time.Minute}
		err := server.Serve(t.Context(), bytes.NewReader(said), &out)
		if err != nil {
			require.ErrorIs(t, err, agent.ErrProtocol)
		}
		c, err := agent.OpenStream(t.Context(), &out, io.Discard, "t")
		require.NoError(t, err, "it greets whatever comes")
		require.Equal(t, greeting, c.Greeting)
	})
}
