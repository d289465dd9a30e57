package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

var greeting = frame.Greeting{Protocol: frame.Version, Genv: "v2", Capabilities: []string{"echo"}}

// echo answers with the body, refuses "no", and is silent to "hush" until no answer is wanted or the server is to end.
type echo struct{ hushed chan string }

func (e echo) Handle(ctx context.Context, r agent.Call) ([]byte, error) {
	switch r.Name {
	case "no":
		return nil, errors.New("I will not")
	case "huge":
		return make([]byte, frame.MaxBody+1), nil
	case "hush":
		<-r.Wanted.Done()
		e.hushed <- "not wanted"
		return nil, context.Cause(r.Wanted)
	}
	return r.Body, ctx.Err()
}

// both joins a server and a client's pipes; ended gets what Serve returned.
func both(ctx context.Context, server *agent.Responder) (in io.ReadCloser, out io.WriteCloser, ended <-chan error) {
	requests, out := io.Pipe()
	in, answers := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- server.Serve(ctx, requests, answers)
		_ = answers.Close()
		_ = requests.Close()
	}()
	return in, out, done
}

// talk opens a stream to a server.
func talk(t testing.TB, server *agent.Responder) (
	c *agent.Stream, in io.ReadCloser, out io.WriteCloser, ended <-chan error,
) {
	t.Helper()
	in, out, ended = both(t.Context(), server)
	c = proctest.Try(agent.OpenStream(t.Context(), in, out, "t")).OK(t)
	return c, in, out, ended
}

// calls calls, and returns where the error comes.
func calls(ctx context.Context, c *agent.Stream, name, body string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, name, []byte(body))
		ended <- err
	}()
	return ended
}

func echoing(idle time.Duration) *agent.Responder {
	return &agent.Responder{Token: "t", Greeting: greeting, Handler: echo{make(chan string, 1)}.Handle, Idle: idle}
}

func TestConversation(t *testing.T) {
	c, _, out, ended := talk(t, echoing(time.Minute))
	require.Equal(t, greeting, c.Greeting)
	require.True(t, c.Greeting.Can("echo"))
	require.False(t, c.Greeting.Can("dance"))
	for _, body := range []string{"", "a", strings.Repeat("gnv1", 1<<18), "\ngenv-serve t\n"} {
		require.Equal(t, body, string(proctest.Try(c.Call(t.Context(), "echo", []byte(body))).OK(t)))
	}
	_, err := c.Call(t.Context(), "no", nil)
	require.ErrorIs(t, err, agent.ErrRefused)
	require.ErrorContains(t, err, "I will not")
	require.ErrorIs(t, proctest.Try(c.Call(t.Context(), "huge", nil)).Err, agent.ErrRefused)
	require.Equal(t, "still here", string(proctest.Try(c.Call(t.Context(), "echo", []byte("still here"))).OK(t)))
	require.NoError(t, out.Close())
	require.NoError(t, <-ended, "hanging up is the ordinary end")
	require.ErrorIs(t, proctest.Try(c.Call(t.Context(), "echo", nil)).Err, agent.ErrEnded)
	require.ErrorIs(t, proctest.Try(c.Call(t.Context(), "echo", nil)).Err, agent.ErrNotSent, "it ended before")
}

func TestTheServerEnds(t *testing.T) {
	stop := errors.New("SIGTERM")
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, in io.ReadCloser, out io.WriteCloser, cancel context.CancelCauseFunc)
		want error
	}{
		{"no request", func(*testing.T, io.ReadCloser, io.WriteCloser, context.CancelCauseFunc) {}, agent.ErrIdle},
		{"it is told to", func(_ *testing.T, _ io.ReadCloser, _ io.WriteCloser, cancel context.CancelCauseFunc) { cancel(stop) }, stop},
		{"hung up", func(_ *testing.T, _ io.ReadCloser, out io.WriteCloser, _ context.CancelCauseFunc) { _ = out.Close() }, nil},
		{"hung up while an answer is in the making", func(t *testing.T, _ io.ReadCloser, out io.WriteCloser, _ context.CancelCauseFunc) {
			proctest.Try(out.Write(agent.Frame(frame.KindRequest, "hush", 1, nil))).OK(t)
			_ = out.Close()
		}, agent.ErrIdle /* the refusal is not taken by anybody here */},
		{"the answer is not read", func(t *testing.T, _ io.ReadCloser, out io.WriteCloser, _ context.CancelCauseFunc) {
			proctest.Try(out.Write(agent.Frame(frame.KindRequest, "echo", 1, []byte("x")))).OK(t)
		}, agent.ErrIdle},
		{"a request twice", func(_ *testing.T, in io.ReadCloser, out io.WriteCloser, _ context.CancelCauseFunc) {
			go func() { _, _ = io.Copy(io.Discard, in) }()
			for range 2 {
				_, _ = out.Write(agent.Frame(frame.KindRequest, "echo", 1, nil))
			}
		}, frame.ErrProtocol},
		{"a request out of order", func(_ *testing.T, in io.ReadCloser, out io.WriteCloser, _ context.CancelCauseFunc) {
			go func() { _, _ = io.Copy(io.Discard, in) }()
			for _, id := range []uint64{5, 4} {
				_, _ = out.Write(agent.Frame(frame.KindRequest, "echo", id, nil))
			}
		}, frame.ErrProtocol},
		{"an answer for a request", func(_ *testing.T, _ io.ReadCloser, out io.WriteCloser, _ context.CancelCauseFunc) {
			_, _ = out.Write(agent.Frame(frame.KindAnswer, "", 1, nil))
		}, frame.ErrProtocol},
		{"no frame at all", func(_ *testing.T, _ io.ReadCloser, out io.WriteCloser, _ context.CancelCauseFunc) {
			_, _ = io.WriteString(out, "GET / HTTP/1.1\r\nHost: gpu\r\n\r\n")
		}, frame.ErrProtocol},
		{"half a request", func(_ *testing.T, _ io.ReadCloser, out io.WriteCloser, _ context.CancelCauseFunc) {
			whole := agent.Frame(frame.KindRequest, "echo", 1, []byte("body"))
			_, _ = out.Write(whole[:len(whole)-5])
			_ = out.Close()
		}, frame.ErrProtocol},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			in, out, ended := both(ctx, echoing(time.Minute))
			proctest.Try(io.ReadFull(in, make([]byte, len(agent.Greet("t", greeting))))).OK(t)
			tt.do(t, in, out, cancel)
			if tt.want == nil {
				require.NoError(t, <-ended)
			} else {
				require.ErrorIs(t, <-ended, tt.want)
			}
			_ = in.Close()
			_ = out.Close()
		})
	}
}

// TestBadHosts: whatever is wrong at the other end, nothing of it is used, and it is told what kind of wrong it is.
func TestBadHosts(t *testing.T) {
	hello := string(agent.Greet("t", greeting))
	answer := func(id uint64, body string) string {
		return string(agent.Frame(frame.KindAnswer, "", id, []byte(body)))
	}
	garbled := []byte(answer(1, "the truth"))
	garbled[len(garbled)-8] ^= 1
	tooLong := []byte(answer(1, ""))
	tooLong[16] = 0x7f // 2 GiB
	other := frame.Greeting{Protocol: frame.Version + 1, Genv: "v3"}
	for _, tt := range []struct {
		name, says string
		open, call error
	}{
		{name: "a good one", says: hello + answer(1, "yes")},
		{name: "a banner before", says: "Welcome to gpu!\r\n\ngenv-serve wrong\n\x00\xff\n" + hello + answer(1, "yes")},
		{name: "a long line before", says: strings.Repeat("x", 70000) + "\n" + hello + answer(1, "yes")},
		{name: "a banner without an end before", says: "no newline" + hello + answer(1, "yes")},
		{name: "an empty line before", says: "\n\n" + hello + answer(1, "yes")},
		{name: "it refuses", says: hello + string(agent.Frame(frame.KindRefusal, "", 1, []byte("no"))), call: agent.ErrRefused},
		{name: "nothing", says: "", open: frame.ErrNoGreeting},
		{name: "a banner only", says: "Welcome\n", open: frame.ErrNoGreeting},
		{name: "another's token", says: string(agent.Greet("u", greeting)), open: frame.ErrNoGreeting},
		{name: "noise without an end", says: strings.Repeat("noise\n", 1<<18) + hello, open: frame.ErrNoGreeting},
		{name: "noise on one line", says: strings.Repeat("noise ", 1<<18) + hello, open: frame.ErrNoGreeting},
		{name: "another version", says: string(agent.Greet("t", other)), open: frame.ErrVersion},
		{name: "a beacon and no greeting", says: "\ngenv-serve t\n" + answer(1, "{}"), open: frame.ErrProtocol},
		{name: "a beacon and garbage", says: "\ngenv-serve t\n{\"protocol\":1}............", open: frame.ErrProtocol},
		{name: "a beacon and its end", says: "\ngenv-serve t\n", open: io.EOF},
		{name: "a greeting that is cut", says: hello[:len(hello)-1], open: frame.ErrProtocol},
		{name: "it hangs up", says: hello, call: agent.ErrEnded},
		{name: "a garbled answer", says: hello + string(garbled), call: frame.ErrProtocol},
		{name: "an answer that is cut", says: hello + answer(1, "yes")[:20], call: frame.ErrProtocol},
		{name: "a header that is cut", says: hello + answer(1, "yes")[:7], call: frame.ErrProtocol},
		{name: "an answer too long", says: hello + string(tooLong), call: frame.ErrProtocol},
		{name: "the answer to another question", says: hello + answer(7, "yes"), call: frame.ErrProtocol},
		{name: "a late answer", says: hello + answer(0, "yes"), call: frame.ErrProtocol},
		{name: "a second greeting", says: hello + string(agent.Frame(frame.KindGreeting, "", 1, nil)), call: frame.ErrProtocol},
		{name: "a request for an answer", says: hello + string(agent.Frame(frame.KindRequest, "echo", 1, nil)), call: frame.ErrProtocol},
		{name: "words in between", says: hello + "You have new mail.\n" + answer(1, "yes"), call: frame.ErrProtocol},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in, out := agent.Scripted([]byte(tt.says), []byte(hello))
			c, err := agent.OpenStream(t.Context(), in, out, "t")
			if tt.open != nil {
				require.ErrorIs(t, err, tt.open)
				return
			}
			require.NoError(t, err)
			body, err := c.Call(t.Context(), "echo", nil)
			if tt.call != nil {
				require.ErrorIs(t, err, tt.call)
				require.Nil(t, body)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "yes", string(body))
		})
	}
}

// TestAnswersTwice: the second answer is never taken for another question's,
// and the question after it is not even sent.
func TestAnswersTwice(t *testing.T) {
	requests, out := io.Pipe()
	in, answers := io.Pipe()
	go func() {
		_, _ = answers.Write(agent.Greet("t", greeting))
		_, _ = io.ReadFull(requests, make([]byte, len(agent.Frame(frame.KindRequest, "echo", 1, nil))))
		twice := agent.Frame(frame.KindAnswer, "", 1, []byte("once"))
		_, _ = answers.Write(append(twice, twice...))
	}()
	c := proctest.Try(agent.OpenStream(t.Context(), in, out, "t")).OK(t)
	require.Equal(t, "once", string(proctest.Try(c.Call(t.Context(), "echo", nil)).OK(t)))
	_, err := c.Call(t.Context(), "echo", nil)
	require.ErrorIs(t, err, frame.ErrProtocol)
	require.ErrorIs(t, err, agent.ErrNotSent)
	_ = in.Close()
	_ = out.Close()
}

// TestLateAnswers: when the time is over so is the conversation, at once, even
// though the read goes on until the session is closed.
func TestLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, in, out, ended := talk(t, echoing(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		require.ErrorIs(t, proctest.Try(c.Call(ctx, "hush", nil)).Err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begun))
		require.ErrorIs(t, proctest.Try(c.Call(t.Context(), "echo", nil)).Err, agent.ErrNotSent)
		_ = in.Close() // first, or the read that goes on might still take the answer
		_ = out.Close()
		require.Error(t, <-ended, "the answer was not read")
	})
}

func TestAQuestionTooLateIsNotSent(t *testing.T) {
	c, _, out, ended := talk(t, echoing(time.Minute))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, proctest.Try(c.Call(over, "echo", nil)).Err, agent.ErrNotSent)
	answer := proctest.Try(c.Call(t.Context(), "echo", []byte("a"))).OK(t, "the conversation goes on")
	require.Equal(t, "a", string(answer))
	require.NoError(t, out.Close())
	require.NoError(t, <-ended)
}

func TestTooLongToSend(t *testing.T) {
	c := proctest.Try(agent.OpenStream(t.Context(), bytes.NewReader(agent.Greet("t", greeting)), io.Discard, "t")).OK(t)
	require.Error(t, proctest.Try(c.Call(t.Context(), "echo", make([]byte, frame.MaxBody+1))).Err)
	require.Error(t, proctest.Try(c.Call(t.Context(), strings.Repeat("n", 300), nil)).Err)
}

func BenchmarkCall(b *testing.B) {
	for _, size := range []int{32, 4 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%d bytes", size), func(b *testing.B) {
			c, _, out, ended := talk(b, echoing(time.Minute))
			body := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				proctest.Try(c.Call(b.Context(), "echo", body)).OK(b)
			}
			_ = out.Close()
			require.NoError(b, <-ended)
		})
	}
}
