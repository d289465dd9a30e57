package agent_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

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
			f := startFleet(t, 10*time.Second, genvhost.New(busy(1)), genvhost.New(busy(1)).Old(), nvidia)
			processes := []int{1, 1, 0}
			for i, via := range []agent.Via{agent.ViaStream, agent.ViaCommands, agent.ViaReadOnly} {
				require.NoError(t, f.Hosts()[i].Inject(inprocess.Faults{Before: noise}))
				s, err := f.streams.Snapshot(t.Context(), f.hosts[i])
				require.NoError(t, err, via)
				require.Equal(t, via, f.streams.About(f.hosts[i]).Via)
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
			f := startFleet(t, 10*time.Second, silent)
			require.NoError(t, f.Hosts()[0].Inject(inprocess.Faults{Before: noise}))
			s, err := f.streams.Snapshot(t.Context(), f.hosts[0])
			require.Nil(t, s)
			require.Equal(t, remote.InvalidOutput, remote.ClassOf(err), "%v", err)
		})
	}
}

// An answer that is like the one before isn't decoded again: whatever the order in which answers
// come, each says what it says.
func TestAnswersThatRepeatThemselves(t *testing.T) {
	encoded, err := snapshot.EncodeNative(busy(1))
	require.NoError(t, err)
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
	f := startFleet(t, time.Minute, speaking(ours, func(context.Context, agent.Call) ([]byte, error) {
		return []byte(steps[at.Load()].answer), nil
	}))
	var last *snapshot.Snapshot
	for i, step := range steps {
		at.Store(int32(i))
		s, err := f.streams.Snapshot(t.Context(), f.hosts[0])
		if step.fails {
			require.Equal(t, remote.InvalidOutput, remote.ClassOf(err), "%d: %v", i, err)
			continue
		}
		require.NoError(t, err, i)
		require.Equal(t, step.isNew, s != last, i)
		last = s
	}
}
