package agent_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// slowly is a network on which a login, and then sudo, takes its time.
type slowly struct {
	*pretended
	turn, login, sudo time.Duration
}

func (n *slowly) Resolve(context.Context, remote.Host) { time.Sleep(n.turn) }

func (n *slowly) start(ctx context.Context, h remote.Host, command remote.Command) (agent.Session, error) {
	if !remote.Sleep(ctx, n.login) {
		return nil, remote.Errorf(remote.Timeout, "the login took too long")
	}
	session, err := n.pretended.start(ctx, h, command)
	if p, ok := session.(*piped); ok {
		p.Reader = &late{Reader: p.Reader, after: n.sudo}
	}
	return session, err
}

// late has its first answer after a time.
type late struct {
	io.Reader
	after time.Duration
}

func (l *late) Read(b []byte) (int, error) {
	time.Sleep(l.after)
	l.after = 0
	return l.Reader.Read(b)
}

// TestSlowIsNotNever: what comes before the first answer has a deadline of its own, goes on over cycles,
// and delays none of them. The wait for a turn isn't the host's time.
func TestSlowIsNotNever(t *testing.T) {
	for name, tt := range map[string]struct {
		turn, login, sudo time.Duration
		never             bool
	}{
		"a login of 12 s":           {login: 12 * time.Second},
		"a login of 25 s":           {login: 25 * time.Second},
		"sudo waits for DNS":        {sudo: 20 * time.Second},
		"both":                      {login: 25 * time.Second, sudo: 20 * time.Second},
		"what never ends":           {sudo: 5 * time.Minute, never: true},
		"a turn that is far away":   {turn: 3 * time.Minute},
		"a turn, and a slow login":  {turn: 3 * time.Minute, login: 25 * time.Second},
		"a login that is no slower": {login: 5 * time.Second},
	} {
		bubble(t, name, func(t *testing.T) {
			n := &slowly{pretended: pretend(up), turn: tt.turn, login: tt.login, sudo: tt.sudo}
			pool := n.pool(t)
			pool.Start, pool.Network, pool.Patience = n.start, n, 11*time.Second
			defer func() { pool.Close(); time.Sleep(tt.sudo) }()
			began, took := time.Now(), tt.turn+tt.login+tt.sudo
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			_, err := pool.Snapshot(ctx, remote.Host{Name: "a"})
			require.LessOrEqual(t, time.Since(began), tt.turn+12*time.Second, "the cycle goes on")
			if tt.login+tt.sudo > pool.Patience {
				require.Equal(t, remote.Timeout, remote.ClassOf(err))
				require.ErrorContains(t, err, "it goes on")
			}
			for ; err != nil && ctx.Err() == nil; time.Sleep(time.Second) {
				asked := time.Now()
				_, err = pool.Snapshot(ctx, remote.Host{Name: "a"})
				require.Less(t, time.Since(asked), time.Second)
			}
			require.Equal(t, tt.never, err != nil)
			if !tt.never {
				require.LessOrEqual(t, time.Since(began), took+2*time.Second)
				require.Equal(t, 1, n.logins)
			}
		})
	}
}

// TestSingleCycleWaitsForALogin: without Patience the first login is waited for, and others than 64
// slow ones don't wait for a place.
func TestSingleCycleWaitsForALogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &slowly{pretended: pretend(up), login: 45 * time.Second}
		pool := n.pool(t)
		pool.Start, pool.Network, pool.Fanout = n.start, n, 1
		began := time.Now()
		for _, r := range remote.Each(t.Context(), []remote.Host{{Name: "a"}, {Name: "b"}, {Name: "c"}}, 3, pool.Snapshot) {
			require.NoError(t, r.Err)
		}
		require.Less(t, time.Since(began), 70*time.Second)
	})
}

// slowCommands is a network of hosts with genv 1.4.3, where each sudo takes its time on host a.
type slowCommands struct {
	*scripted
	sudo time.Duration
}

func (n *slowCommands) start(ctx context.Context, h remote.Host, command remote.Command) (agent.Session, error) {
	if h.Name == "a" && !remote.Sleep(ctx, n.sudo) {
		return nil, remote.Errorf(remote.Timeout, "sudo took too long")
	}
	return n.scripted.start(ctx, h, command)
}

func (n *slowCommands) Run(ctx context.Context, h remote.Host, c remote.Command) (remote.Output, error) {
	limited, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, timeout)) // as sshclient.Client has one
	defer cancel()
	if h.Name == "a" && !remote.Sleep(limited, n.sudo) {
		return remote.Output{}, remote.Errorf(remote.Timeout, "sudo took too long")
	}
	return n.scripted.Run(ctx, h, c)
}

// TestSlowSudoOfAnOldHost: where each request is a command with sudo, each may take as long as the login did.
func TestSlowSudoOfAnOldHost(t *testing.T) {
	for sudo, never := range map[time.Duration]bool{time.Second: false, 12 * time.Second: false, 25 * time.Second: false, 5 * time.Minute: true} {
		bubble(t, sudo.String(), func(t *testing.T) {
			n := &slowCommands{&scripted{command: func(context.Context, remote.Host) (remote.Output, error) { return remote.Output{}, nil }}, sudo}
			pool, host := n.pool(t), remote.Host{Name: "a"}
			pool.Start, pool.Network, pool.Patience, pool.Fanout = n.start, n, 11*time.Second, 1
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			began := time.Now()
			_, err := pool.Snapshot(ctx, host)
			for ; err != nil && ctx.Err() == nil; time.Sleep(time.Second) {
				_, err = pool.Snapshot(ctx, host)
			}
			require.Equal(t, never, err != nil)
			if !never {
				require.LessOrEqual(t, time.Since(began), 4*sudo)
				proctest.Try(pool.Execute(ctx, host, oneProcess)).OK(t)
				others, began := []remote.Host{host, {Name: "b"}}, time.Now()
				for _, r := range remote.Each(ctx, others, 2, func(ctx context.Context, h remote.Host) (time.Duration, error) {
					_, err := pool.Snapshot(ctx, h)
					return time.Since(began), err
				}) {
					require.NoError(t, r.Err)
					require.True(t, r.Host.Name == "a" || r.Value <= pool.Timeout+time.Second, "%s delays no other host", r.Value)
				}
			}
		})
	}
}

// noises are what shell start-up files print before the data of a host.
var noises = map[string]string{
	"a line": "Welcome\n", "no newline": "Welcome", "an empty object": "{}\n", "an object without a newline": `{"processes": []}`,
	"an open brace": "{\n", "an open object": `{"envs": [`, "not text": "\x00\xff\x1b[2J",
}

// TestNoiseBeforeData: it makes no host invalid, with our genv, with 1.4.3 and without genv.
func TestNoiseBeforeData(t *testing.T) {
	nvidia := inprocess.Func(func(_ context.Context, r *inprocess.Request) int {
		if !strings.HasPrefix(r.Line, "sh -c") { // sudo -n genv usage serve
			fmt.Fprintln(r.Stderr, "sudo: genv: command not found")
			return 1
		}
		row := ""
		if strings.Contains(r.Line, "--query-gpu") {
			row = "0, GPU-0, 81559, 1, 0, 31, 70.12, H100\n"
		}
		_, _ = io.WriteString(r.Stdout, "\ngenv-data\n"+row+"\ngenv-data 0\n")
		return 0
	})
	for name, noise := range noises {
		t.Run(name, func(t *testing.T) {
			f := genvhost.Start(t, 10*time.Second, genvhost.New(genvhost.Busy(1)), genvhost.New(genvhost.Busy(1)).Old(), nvidia)
			processes := []int{1, 1, 0}
			for i, via := range []agent.Via{agent.ViaStream, agent.ViaCommands, agent.ViaReadOnly} {
				require.NoError(t, f.Hosts()[i].Inject(inprocess.Faults{Before: noise}))
				s := proctest.Try(f.Streams.Snapshot(t.Context(), f.Names[i])).OK(t, via)
				require.Equal(t, via, f.Streams.About(f.Names[i]).Via)
				require.Len(t, s.Processes, processes[i])
			}
		})
	}
}

// TestNoiseIsNoAnswer: what looks like an answer and is none from genv is not used.
func TestNoiseIsNoAnswer(t *testing.T) {
	for name, noise := range noises {
		t.Run(name, func(t *testing.T) {
			silent := inprocess.Func(func(_ context.Context, r *inprocess.Request) int {
				if _, err := io.WriteString(r.Stderr, "invalid choice: 'serve'"); err != nil || strings.HasSuffix(r.Line, "snapshot") {
					return 0
				}
				return 2
			})
			f := genvhost.Start(t, 10*time.Second, silent)
			require.NoError(t, f.Hosts()[0].Inject(inprocess.Faults{Before: noise}))
			s, err := f.Streams.Snapshot(t.Context(), f.Names[0])
			require.Nil(t, s)
			require.Equal(t, remote.InvalidOutput, remote.ClassOf(err), "%v", err)
		})
	}
}

// An answer that is like the one before isn't decoded again: whatever the order in which answers
// come, each says what it says.
func TestAnswersThatRepeatThemselves(t *testing.T) {
	encoded := proctest.Try(snapshot.EncodeNative(genvhost.Busy(1))).OK(t)
	const other = `"noted":{"source":"folder:f"}` // as of an older host
	long := `"noted_unknown":"` + strings.Repeat("x", 1100) + `"`
	steps := []struct {
		answer string
		isNew  bool // another snapshot than before
		fails  bool
	}{
		{answer: `{"revision":1,"snapshot":` + string(encoded) + `}`, isNew: true},
		{answer: `{"revision":1}`},
		{answer: `{"revision":1}`},
		{answer: `{"revision":1,` + other + `}`},
		{answer: `{"revision":1}`},
		{answer: `{"revision":1,` + other + `}`},
		{answer: `{"revision":1,` + other + `}`},
		{answer: `{"revision":2,"snapshot":` + string(encoded) + `,` + other + `}`, isNew: true},
		{answer: `{"revision":2}`},
		{answer: `{"revision":2,` + long + `}`},
		{answer: `{"revision":2,` + long + `}`},
		{answer: `{"revision":2}`},
		{answer: `{"revision":1}`, fails: true},
	}
	var at atomic.Int32
	f := genvhost.Start(t, time.Minute, speaking(ours, func(context.Context, agent.Call) ([]byte, error) {
		return []byte(steps[at.Load()].answer), nil
	}))
	var last *snapshot.Snapshot
	for i, step := range steps {
		at.Store(int32(i))
		s, err := f.Streams.Snapshot(t.Context(), f.Names[0])
		if step.fails {
			require.Equal(t, remote.InvalidOutput, remote.ClassOf(err), "%d: %v", i, err)
			continue
		}
		require.NoError(t, err, i)
		require.Equal(t, step.isNew, s != last, i)
		last = s
	}
}
