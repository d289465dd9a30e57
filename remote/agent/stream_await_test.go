package agent_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/agent"
)

// outcome is what Await said.
type outcome struct {
	answer string
	err    error
}

// await returns where the outcomes come.
func (e *eventful) await(ctx context.Context, limit time.Duration) <-chan outcome {
	outcomes := make(chan outcome, 2)
	e.Await(ctx, limit, agent.RequestWait, []byte(`{"max_ms":300000}`), func(answer []byte, err error) {
		outcomes <- outcome{string(answer), err}
	})
	synctest.Wait()
	return outcomes
}

// Whatever ends it, done is called once, and only what breaks the stream breaks it.
func TestAwait(t *testing.T) {
	for name, row := range map[string]struct {
		do     func(e *eventful, cancel func())
		answer string
		err    error
		broken bool
	}{
		"the host answers":              {func(e *eventful, _ func()) { e.bell.rings <- struct{}{} }, `{"woke":true}`, nil, false},
		"it is not waited for any more": {func(_ *eventful, cancel func()) { cancel() }, "", context.Canceled, false},
		"the host hangs":                {func(*eventful, func()) { time.Sleep(time.Minute) }, "", context.DeadlineExceeded, true},
		"the host hangs up":             {func(e *eventful, _ func()) { e.hangUp() }, "", agent.ErrEnded, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := listen(t, nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				outcomes := e.await(ctx, time.Minute)
				require.Empty(t, outcomes)
				row.do(e, cancel)
				synctest.Wait()
				require.Len(t, outcomes, 1)
				got := <-outcomes
				require.Equal(t, row.answer, got.answer)
				require.ErrorIs(t, got.err, row.err)
				cancel()
				time.Sleep(10 * time.Minute) // neither its time nor its context end it again
				require.Empty(t, outcomes)
				_, err := e.Call(t.Context(), agent.RequestPing, nil)
				require.Equal(t, row.broken, err != nil, err)
				e.hangUp()
				require.NoError(t, <-e.ended)
			})
		})
	}
}

// What can't be sent is said in the same way.
func TestAwaitThatIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := listen(t, nil)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, (<-e.await(ended, time.Minute)).err, agent.ErrNotSent)
		e.hangUp()
		require.NoError(t, <-e.ended)
		synctest.Wait()
		outcomes := e.await(t.Context(), time.Minute)
		require.Len(t, outcomes, 1)
		require.ErrorIs(t, (<-outcomes).err, agent.ErrNotSent)
	})
}

// The answer that comes while Await has yet to begin to watch the call is not lost.
func TestAwaitOfAnAnswerThatComesAtOnce(t *testing.T) {
	e := listen(t, func(s *agent.Server) { s.Handler = atOnce{} })
	for range 2000 {
		came := make(chan error, 2)
		e.Await(t.Context(), time.Hour, agent.RequestWait, []byte(`{}`), func(_ []byte, err error) { came <- err })
		require.NoError(t, <-came)
		require.Empty(t, came)
	}
	e.hangUp()
	require.NoError(t, <-e.ended)
}

// atOnce answers everything.
type atOnce struct{}

func (atOnce) Handle(context.Context, agent.Request) ([]byte, error) { return []byte(`{}`), nil }
