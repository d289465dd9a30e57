package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// bell is the events of a host on which somebody rings.
type bell struct {
	rings   chan struct{}
	waiting atomic.Int32
	broken  error
}

func (b *bell) Wait(ctx context.Context) error {
	b.waiting.Add(1)
	defer b.waiting.Add(-1)
	if b.broken != nil {
		return b.broken
	}
	select {
	case <-b.rings:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// eventful is a stream to a host with events.
type eventful struct {
	*agent.Stream
	bell   *bell
	hangUp func()
	ended  <-chan error // what Serve returned
}

func listen(t *testing.T, change func(*agent.Responder)) *eventful {
	t.Helper()
	e := &eventful{bell: &bell{rings: make(chan struct{})}}
	server := &agent.Responder{
		Token: "t", Greeting: agent.NewGreeting("v", agent.CapabilityEvents), Idle: time.Hour,
		Handler: (&agent.Answers{Backend: &grave{release: make(chan struct{})}, Event: e.bell.Wait}).Handle,
	}
	if change != nil {
		change(server)
	}
	stream, in, out, ended := talk(t, server)
	e.Stream, e.ended = stream, ended
	e.hangUp = func() {
		_ = out.Close()
		_ = in.Close()
	}
	return e
}

// wait sends a request to wait, and returns where its answer comes.
func (e *eventful) wait(t *testing.T, body string) <-chan string {
	answers := make(chan string, 1)
	go func() {
		answer, err := e.Call(t.Context(), agent.RequestWait, []byte(body))
		if err != nil {
			answer = []byte(err.Error())
		}
		answers <- string(answer)
	}()
	synctest.Wait()
	return answers
}

func TestAWaitEnds(t *testing.T) {
	const long = `{"max_ms":60000}`
	for name, row := range map[string]struct {
		body string
		do   func(t *testing.T, e *eventful)
		want string
	}{
		"when something happens": {long, func(_ *testing.T, e *eventful) { e.bell.rings <- struct{}{} }, `{"woke":true}`},
		"when its time is over":  {long, func(*testing.T, *eventful) { time.Sleep(time.Minute) }, `{"woke":false}`},
		"not before":             {long, func(*testing.T, *eventful) { time.Sleep(59 * time.Second) }, ""},
		"at once without a time": {`{}`, func(*testing.T, *eventful) {}, `{"woke":false}`},
		"within minutes in any case": {`{"max_ms":9223372036854775807}`, func(*testing.T, *eventful) {
			time.Sleep(5 * time.Minute)
		}, `{"woke":false}`},
		"at the next wait": {long, func(t *testing.T, e *eventful) {
			e.wait(t, long)
			require.EqualValues(t, 1, e.bell.waiting.Load())
		}, `{"woke":false}`},
		"not at another request": {long, func(t *testing.T, e *eventful) {
			for _, name := range []string{agent.RequestSnapshot, agent.RequestNotify, agent.RequestPing} {
				proctest.Try(e.Call(t.Context(), name, []byte(`{}`))).OK(t)
			}
		}, ""},
		"if it can't be read": {`[]`, func(*testing.T, *eventful) {}, "cannot unmarshal"},
	} {
		bubble(t, name, func(t *testing.T) {
			e := listen(t, nil)
			answers := e.wait(t, row.body)
			row.do(t, e)
			synctest.Wait()
			got := ""
			select {
			case got = <-answers:
			default:
			}
			if row.want == "" {
				require.Empty(t, got)
			}
			require.Contains(t, got, row.want)
			e.hangUp()
			require.NoError(t, <-e.ended)
			require.Zero(t, e.bell.waiting.Load(), "it ends with the connection")
		})
	}
}

func TestAWaitDelaysNoEndOfTheServer(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*agent.Responder)
		want   error
	}{
		"nothing is asked for": {func(s *agent.Responder) { s.Idle = time.Minute }, agent.ErrIdle},
		"it is replaced":       {func(s *agent.Responder) { s.Replaced = func() bool { return true } }, agent.ErrReplaced},
	} {
		bubble(t, name, func(t *testing.T) {
			e := listen(t, row.change)
			e.wait(t, `{"max_ms":300000}`)
			begun := time.Now()
			require.ErrorIs(t, <-e.ended, row.want)
			require.LessOrEqual(t, time.Since(begun), time.Minute)
			e.hangUp()
		})
	}
}

func TestAHostWithoutEventsRefusesToWait(t *testing.T) {
	answers := &agent.Answers{}
	_, err := answers.Handle(t.Context(), agent.Call{Frame: &frame.Frame{Name: agent.RequestWait, Body: []byte(`{"max_ms":1}`)}, Wanted: t.Context()})
	require.ErrorContains(t, err, `no request "wait"`)
	answers.Event = (&bell{broken: errors.New("no inotify")}).Wait
	_, err = answers.Handle(t.Context(), agent.Call{Frame: &frame.Frame{Name: agent.RequestWait, Body: []byte(`{"max_ms":1000}`)}, Wanted: t.Context()})
	require.ErrorContains(t, err, "no inotify")
	_, err = agent.ViewHandler(nil)(t.Context(), agent.Call{Frame: &frame.Frame{Name: agent.RequestWait, Body: []byte(`{}`)}, Wanted: t.Context()})
	require.ErrorContains(t, err, "without root")
}

// Many waits that are ended by the next one leave nothing behind.
func TestManyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := listen(t, nil)
		for range 1000 {
			e.wait(t, `{"max_ms":300000}`)
		}
		require.EqualValues(t, 1, e.bell.waiting.Load())
		e.hangUp()
		require.NoError(t, <-e.ended)
	})
}

// await waits until a wait is over.
func await(ctx context.Context, p *agent.Pool, h remote.Host) (woke bool, err error) {
	done := make(chan struct{})
	p.Await(ctx, h, func(w bool, e error) {
		woke, err = w, e
		close(done)
	})
	<-done
	return woke, err
}

// A Pool waits only for hosts that report events, and neither connects nor shows it.
func TestAPoolWaits(t *testing.T) {
	eventful, plain, old := genvhost.New(genvhost.Busy(1)).WithEvents(), genvhost.New(genvhost.Busy(1)), genvhost.New(genvhost.Busy(1)).Old()
	f := genvhost.Start(t, 10*time.Second, eventful, plain, old)
	_, err := await(t.Context(), f.Streams, f.Names[0])
	require.ErrorContains(t, err, "has not been asked")
	require.NotErrorIs(t, err, agent.ErrNoEvents, "that isn't known yet")
	require.Zero(t, f.Hosts()[0].Counts().Commands)
	for _, h := range f.Names {
		snapshotOf(t, f.Streams, h)
	}
	for _, h := range f.Names[1:] {
		require.ErrorIs(t, proctest.Try(await(t.Context(), f.Streams, h)).Err, agent.ErrNoEvents)
	}

	woke := make(chan bool, 1)
	go func() {
		ok, err := await(t.Context(), f.Streams, f.Names[0])
		woke <- ok && err == nil
	}()
	require.Eventually(t, func() bool { return eventful.Waits() == 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, agent.ViaStream, f.Streams.About(f.Names[0]).Via)
	proctest.Try(f.Streams.Snapshot(t.Context(), f.Names[0])).OK(t, "it is asked meanwhile")
	eventful.Change(func(*snapshot.Snapshot) {})
	require.True(t, <-woke)

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := await(ctx, f.Streams, f.Names[0])
		ended <- err
	}()
	require.Eventually(t, func() bool { return eventful.Waits() == 2 }, 10*time.Second, time.Millisecond)
	cancel()
	require.Error(t, <-ended)
	proctest.Try(f.Streams.Snapshot(t.Context(), f.Names[0])).OK(t, "the connection stays")
	require.Equal(t, 1, f.Hosts()[0].Counts().Commands)
}

func FuzzWaitRequest(f *testing.F) {
	f.Add([]byte(`{"max_ms":0}`))
	f.Add([]byte(`{"max_ms":-9223372036854775808}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		b := &bell{broken: errors.New("no events")}
		answer, err := (&agent.Answers{Event: b.Wait}).Handle(t.Context(), agent.Call{Frame: &frame.Frame{Name: agent.RequestWait, Body: body}, Wanted: t.Context()})
		require.True(t, err != nil || json.Valid(answer))
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func snapshotOf(t *testing.T, pool *agent.Pool, host remote.Host) *snapshot.Snapshot {
	t.Helper()
	return proctest.Try(pool.Snapshot(t.Context(), host)).OK(t)
}
