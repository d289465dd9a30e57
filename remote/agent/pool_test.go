package agent_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func orderOn(s *snapshot.Snapshot) order.Order {
	var o order.Order
	for _, p := range s.Processes {
		o.Terminate = append(o.Terminate, order.Termination{Process: p})
	}
	return o
}

func TestAConversation(t *testing.T) {
	h := genvhost.New(genvhost.Busy(2))
	f := genvhost.Start(t, 10*time.Second, h)
	first := snapshotOf(t, f.Streams, f.Names[0])
	require.Len(t, first.Processes, 2)
	require.EqualValues(t, 77, first.Processes[0].Start)
	require.Same(t, first, snapshotOf(t, f.Streams, f.Names[0]), "nothing changed, so nothing was sent")

	done := proctest.Try(f.Streams.Execute(t.Context(), f.Names[0], orderOn(first))).OK(t)
	require.Equal(t, []order.Outcome{{PID: 1000, Status: order.StatusTerminated}, {PID: 1001, Status: order.StatusTerminated}}, done.Outcomes)
	require.Empty(t, snapshotOf(t, f.Streams, f.Names[0]).Processes)
	require.Equal(t, 1, f.Hosts()[0].Counts().Commands, "one command served all of it")
	require.Equal(t, agent.ViaStream, f.Streams.About(f.Names[0]).Via)
	require.Equal(t, agent.NewGreeting("").Capabilities, f.Streams.About(f.Names[0]).Capabilities)
}

// TestBadConversations: the conversation ends with its class of error, nothing of it is used, and the next one is good.
func TestBadConversations(t *testing.T) {
	for _, tt := range []struct {
		name     string
		behavior genvhost.Behavior
		class    remote.Class // empty: the question is put again, in a new conversation
	}{
		{"frozen", genvhost.Behavior{Freeze: true}, remote.Timeout},
		{"too slow", genvhost.Behavior{Wait: time.Hour}, remote.Timeout},
		{"no answer", genvhost.Behavior{Damage: genvhost.Silent}, remote.Timeout},
		{"garbled", genvhost.Behavior{Damage: genvhost.Garbled}, remote.InvalidOutput},
		{"other bytes", genvhost.Behavior{Damage: genvhost.Noise}, remote.InvalidOutput},
		{"cut", genvhost.Behavior{Damage: genvhost.Cut}, remote.InvalidOutput},
		{"hung up", genvhost.Behavior{Damage: genvhost.Hangup}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := genvhost.New(genvhost.Busy(1))
			f := genvhost.Start(t, timeoutFor(tt.class), h)
			snapshotOf(t, f.Streams, f.Names[0])
			once := make(chan struct{}, 1)
			once <- struct{}{}
			h.Behave(func(string) genvhost.Behavior {
				select {
				case <-once:
					return tt.behavior
				default:
					return genvhost.Behavior{}
				}
			})
			s, err := f.Streams.Snapshot(t.Context(), f.Names[0])
			if tt.class != "" {
				require.Error(t, err)
				require.Equal(t, tt.class, remote.ClassOf(err), "%v", err)
				require.Nil(t, s)
				if tt.class == remote.Timeout {
					require.NotEmpty(t, f.Streams.About(f.Names[0]).Via, "a late answer is waited for a little longer")
				}
				s = eventually(t, f, 0)
			} else {
				require.NoError(t, err)
			}
			require.Len(t, s.Processes, 1)
			require.Eventually(t, func() bool { return f.Hosts()[0].Counts().Commands == 2 }, 20*time.Second, 10*time.Millisecond,
				"a conversation before, and one after")
		})
	}
}

// timeoutFor is short where a timeout is waited for, and long where a slow machine must not cause one.
func timeoutFor(class remote.Class) time.Duration {
	if class == remote.Timeout {
		return 3 * time.Second
	}
	return time.Minute
}

// eventually is the host's next snapshot: one that was lost is reached again behind the cycles' back.
func eventually(t *testing.T, f *genvhost.Fleet, host int) (s *snapshot.Snapshot) {
	require.Eventually(t, func() (ok bool) {
		var err error
		s, err = f.Streams.Snapshot(t.Context(), f.Names[host])
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	return s
}

// TestOrdersInBadConversations: once an order was sent, it is never reported that it
// was not carried out, and it is not sent again.
func TestOrdersInBadConversations(t *testing.T) {
	for name, behavior := range map[string]genvhost.Behavior{
		"no answer": {Damage: genvhost.Silent}, "garbled": {Damage: genvhost.Garbled}, "other bytes": {Damage: genvhost.Noise},
		"cut": {Damage: genvhost.Cut}, "hung up": {Damage: genvhost.Hangup},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := genvhost.New(genvhost.Busy(1))
			f := genvhost.Start(t, 3*time.Second, h)
			s := snapshotOf(t, f.Streams, f.Names[0])
			h.Behave(func(request string) genvhost.Behavior {
				if request == agent.RequestExecute {
					return behavior
				}
				return genvhost.Behavior{}
			})
			o := orderOn(s)
			o.GraceMS = 1
			done, err := f.Streams.Execute(t.Context(), f.Names[0], o)
			require.Equal(t, remote.OutcomeUnknown, remote.ClassOf(err), "%v", err)
			require.Equal(t, agent.Execution{}, done)
			require.Len(t, h.Actions(), 1)
			require.Empty(t, eventually(t, f, 0).Processes)
			require.Len(t, h.Actions(), 1)
		})
	}
}

// speaking is a host with our protocol and an answer of its own to everything.
func speaking(g frame.Greeting, f agent.Handler) inprocess.Func {
	return func(ctx context.Context, r *inprocess.Request) int {
		return genvhost.Speak(ctx, r, &agent.Responder{ReadToken: true, Greeting: g, Handler: f, Idle: time.Hour})
	}
}

var ours = frame.Greeting{Protocol: frame.Version, Capabilities: []string{agent.RequestSnapshot, agent.RequestExecute}}

func always(text string) inprocess.Func {
	return speaking(ours, func(context.Context, agent.Call) ([]byte, error) { return []byte(text), nil })
}

// TestHostsThatSpeakWrongly: each is told by its class, and nothing is used.
func TestHostsThatSpeakWrongly(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler inprocess.Handler
		faults  *inprocess.Faults // nil for none
		class   remote.Class
		says    string
	}{
		{"another version", speaking(frame.Greeting{Protocol: 2}, nil), nil, remote.Version, "version 2"},
		{"no greeting", inprocess.Func(func(ctx context.Context, _ *inprocess.Request) int { <-ctx.Done(); return 0 }), nil, remote.Timeout, ""},
		{"another program", prints(0, "hello\n", ""), nil, remote.InvalidOutput, "no greeting"},
		{"a shell that says why on stdout", prints(1, "Welcome\nThis account is currently not available.\n", ""), nil, remote.CommandFailed, "it says: This account is currently not available."},
		{"an rc file that asks", inprocess.Func(func(ctx context.Context, r *inprocess.Request) int {
			fmt.Fprint(r.Stdout, "Which project? ")
			<-ctx.Done()
			return 0
		}), nil, remote.Timeout, "it says: Which project?"},
		{"sudo wants a password", prints(1, "", "sudo: a password is required\n"), nil, remote.Sudo, ""},
		{"a genv that fails", prints(1, "", "genv: no\n"), nil, remote.CommandFailed, "genv: no"},
		{"a genv that knows no such word but another", prints(2, "", "error: unknown command\n"), nil, remote.CommandFailed, ""},
		{"it says no", speaking(ours, func(context.Context, agent.Call) ([]byte, error) { return nil, io.ErrShortBuffer }), nil, remote.CommandFailed, "short buffer"},
		{"no JSON", always("yes"), nil, remote.InvalidOutput, ""},
		{"no snapshot and no revision", always("{}"), nil, remote.InvalidOutput, "unchanged"},
		{"unchanged what was never sent", always(`{"revision":7}`), nil, remote.InvalidOutput, "unchanged"},
		{"half a snapshot", always(`{"revision":1,"snapshot":{"processes":[],"envs":[]}}`), nil, remote.InvalidOutput, ""},
		{"a flood before the greeting", genvhost.New(genvhost.Busy(1)), &inprocess.Faults{Flood: 8 << 20}, remote.InvalidOutput, "no greeting"},
		{"a flood on stderr", inprocess.Func(flooding), nil, remote.InvalidOutput, "stderr"},
		{"dropped as it greets", genvhost.New(genvhost.Busy(1)), &inprocess.Faults{BreakAfter: new(int64(10))}, remote.Unreachable, ""},
		{"frozen as it greets", genvhost.New(genvhost.Busy(1)), &inprocess.Faults{BreakAfter: new(int64(10)), Freezes: true}, remote.Timeout, ""},
		{"dropped as it answers", genvhost.New(genvhost.Busy(1)), &inprocess.Faults{BreakAfter: new(int64(200))}, remote.InvalidOutput, "cut"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := genvhost.Start(t, timeoutFor(tt.class), tt.handler)
			require.NoError(t, f.Hosts()[0].Inject(*cmp.Or(tt.faults, new(inprocess.Faults))))
			s, err := f.Streams.Snapshot(t.Context(), f.Names[0])
			require.Nil(t, s)
			require.Error(t, err)
			require.Equal(t, tt.class, remote.ClassOf(err), "%v", err)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

func prints(status int, out, errs string) inprocess.Func {
	return func(_ context.Context, r *inprocess.Request) int {
		_, _ = io.WriteString(r.Stdout, out)
		_, _ = io.WriteString(r.Stderr, errs)
		return status
	}
}

// flooding writes more to stderr than anybody keeps, when it is asked.
func flooding(ctx context.Context, r *inprocess.Request) int {
	flood := func(_ context.Context, asked agent.Call) ([]byte, error) {
		_, _ = io.WriteString(r.Stderr, strings.Repeat("what a day\n", 1<<16)) // it may be cut off before the end
		<-asked.Wanted.Done()
		return nil, io.ErrClosedPipe
	}
	return speaking(ours, flood)(ctx, r)
}

// TestWrongOutcomes: outcomes that do not belong to the items (see TestCheck) say nothing.
func TestWrongOutcomes(t *testing.T) {
	s := genvhost.Busy(2)
	encoded := proctest.Try(snapshot.EncodeNative(s)).OK(t)
	for name, outcomes := range map[string]string{
		"none":          `[]`,
		"another order": `[{"pid":1001,"device":0,"status":"terminated"},{"pid":1000,"device":0,"status":"terminated"}]`,
		"no list":       `7`,
		"nothing":       `null`,
	} {
		t.Run(name, func(t *testing.T) {
			f := genvhost.Start(t, 2*time.Second, speaking(ours, func(_ context.Context, r agent.Call) ([]byte, error) {
				if r.Name == agent.RequestSnapshot {
					return fmt.Appendf(nil, `{"revision":1,"snapshot":%s}`, encoded), nil
				}
				return fmt.Appendf(nil, `{"lines":["Terminating"],"outcomes":%s}`, outcomes), nil
			}))
			taken := snapshotOf(t, f.Streams, f.Names[0])
			done, err := f.Streams.Execute(t.Context(), f.Names[0], orderOn(taken))
			require.Equal(t, remote.OutcomeUnknown, remote.ClassOf(err), "%v", err)
			require.Equal(t, agent.Execution{}, done)
			eventually(t, f, 0)
			require.Equal(t, 2, f.Hosts()[0].Counts().Commands, "that conversation is over")
		})
	}
}

func TestFallingBack(t *testing.T) {
	old := genvhost.New(genvhost.Busy(1)).Old()
	f := genvhost.Start(t, 5*time.Second, old, genvhost.New(genvhost.Busy(1)), inprocess.Func(noGenv))
	for range 3 {
		s := snapshotOf(t, f.Streams, f.Names[0])
		require.Len(t, s.Processes, 1)
		require.Zero(t, s.Processes[0].Start, "1.4.3 does not tell")
	}
	require.Equal(t, agent.ViaCommands, f.Streams.About(f.Names[0]).Via)
	require.Equal(t, []string{agent.RequestSnapshot, agent.RequestExecute}, f.Streams.About(f.Names[0]).Capabilities)
	require.Equal(t, 4, f.Hosts()[0].Counts().Commands, "serve is tried once")
	s := snapshotOf(t, f.Streams, f.Names[0])
	done := proctest.Try(f.Streams.Execute(t.Context(), f.Names[0], orderOn(s))).OK(t)
	require.Nil(t, done.Outcomes)
	require.Equal(t, []string{"Terminating process 1000 from environment N/A that is running on GPU(s) 0"}, done.Lines)

	s = snapshotOf(t, f.Streams, f.Names[2])
	require.Equal(t, agent.ViaReadOnly, f.Streams.About(f.Names[2]).Via)
	require.Equal(t, []string{agent.RequestSnapshot}, f.Streams.About(f.Names[2]).Capabilities)
	require.Len(t, s.Devices, 1)
	require.Len(t, s.Processes, 1)
	require.True(t, s.Processes[0].EnvUnknown, "so that nothing follows from it")
	_, err := f.Streams.Execute(t.Context(), f.Names[2], orderOn(s))
	require.Equal(t, remote.GenvMissing, remote.ClassOf(err))

	snapshotOf(t, f.Streams, f.Names[1])
	require.Empty(t, f.Streams.Keep(f.Names))
	require.Equal(t, agent.ViaStream, f.Streams.About(f.Names[1]).Via)
	require.Empty(t, f.Streams.About(f.Names[0]).Via, "it may have been given our genv since")
	require.Equal(t, f.Names[1:2], f.Streams.Keep([]remote.Host{f.Names[0], {Name: "h2"}}))
}

// noGenv is a host with a driver and no genv.
func noGenv(_ context.Context, r *inprocess.Request) int {
	switch {
	case strings.HasPrefix(r.Line, "sudo -n genv"):
		fmt.Fprintln(r.Stderr, "sudo: genv: command not found")
		return 1
	case strings.Contains(r.Line, "query-gpu"):
		fmt.Fprintln(r.Stdout, "\ngenv-data\n0, GPU-1, 81559, 10, 3, 40, 70.12, NVIDIA H100\n\ngenv-data 0")
	case strings.Contains(r.Line, "query-compute-apps"):
		fmt.Fprintln(r.Stdout, "\ngenv-data\nGPU-1, 77, 10\n\ngenv-data 0")
	default:
		return 1
	}
	return 0
}

// TestAHostThatCameBackBetweenCycles has its whole time for an answer, however long ago the login was.
func TestAHostThatCameBackBetweenCycles(t *testing.T) {
	h := genvhost.New(genvhost.Busy(1))
	f := genvhost.Start(t, 500*time.Millisecond, h)
	require.NoError(t, f.Hosts()[0].Inject(inprocess.Faults{Down: true}))
	require.Error(t, proctest.Try(f.Streams.Snapshot(t.Context(), f.Names[0])).Err)
	require.NoError(t, f.Hosts()[0].Inject(inprocess.Faults{}))
	require.Eventually(t, func() bool { // the cycle that begins the attempt does not wait for it
		_, _ = f.Streams.Snapshot(t.Context(), f.Names[0])
		time.Sleep(time.Second) // longer than the Timeout
		s, err := f.Streams.Snapshot(t.Context(), f.Names[0])
		return err == nil && len(s.Processes) == 1
	}, 30*time.Second, time.Millisecond)
	require.Equal(t, 1, f.Hosts()[0].Counts().Commands, "the first login that worked is used")
}
