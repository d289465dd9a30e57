package agent_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

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
	f := startFleet(t, time.Minute, speaking(ours, func(context.Context, agent.Request) ([]byte, error) {
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
