package sharding

import (
	"io"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/shards"
)

// A process that another controller replaced is not started again, and one that failed is started
// again without --take-over: either would take hosts back from who took them over since.
func TestHostsAreTakenOverOnce(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	t.Setenv("TMPDIR", t.TempDir())
	r := &run{
		Options: Options{
			Program: "sh", Args: []string{"-c", "exit $1", "sh", "3", "--take-over"}, Log: zerolog.Nop(),
			Clock: func() time.Duration { return time.Hour },
		},
		errors: os.Stderr, out: &output{to: io.Discard}, woken: make(chan struct{}, 1), seen: new(shards.Seen),
		processes: make(map[int]*process), failures: make(map[int]*failure), begun: make(map[int]bool), replaced: make(map[int]bool),
	}
	ends := func() {
		r.begin(0, r.seen)
		require.Eventually(t, func() bool { r.collect(); return len(r.processes) == 0 }, 30*time.Second, time.Millisecond)
	}
	require.Contains(t, r.argsOf(0), "--take-over")
	ends()
	require.NotNil(t, r.failures[0], "it is started again")
	require.Equal(t, []string{"-c", "exit $1", "sh", "3"}, r.argsOf(0))
	require.Contains(t, r.argsOf(1), "--take-over", "another shard was never started")
	r.Args = []string{"-c", "exit 7"}
	delete(r.failures, 0)
	ends()
	require.True(t, r.replaced[0])
	require.Empty(t, r.failures, "it is not started again")
	require.Equal(t, command.ExitReplaced, command.ExitCode(exitOf(r.exit)))
}
