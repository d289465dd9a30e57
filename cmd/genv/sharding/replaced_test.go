package sharding

import (
	"bytes"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/remote/shards"
)

// A process that another controller replaced is not started again, and one that failed is started
// again without --take-over: either would take hosts back from who took them over since.
func TestHostsAreTakenOverOnce(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	t.Setenv("TMPDIR", t.TempDir())
	var said bytes.Buffer
	r := &run{
		Options: Options{
			Program: "sh", Args: []string{"-c", `echo "$GENV_SHARD_AGAIN $*"; exit 3`, "sh", "--reason", "--take-over"}, Log: zerolog.Nop(),
			Clock: func() time.Duration { return time.Hour },
		},
		errors: os.Stderr, out: &output{to: &said}, woken: make(chan struct{}, 1), seen: new(shards.Seen),
		processes: make(map[int]*process), failures: make(map[int]*failure), begun: make(map[int]bool), replaced: make(map[int]bool),
	}
	ends := func() {
		r.begin(0, r.seen)
		require.Eventually(t, func() bool { r.collect(); return len(r.processes) == 0 }, 30*time.Second, time.Millisecond)
	}
	ends()
	require.NotNil(t, r.failures[0], "it is started again")
	ends()
	require.Equal(t, "false --reason --take-over\ntrue --reason --take-over\n", said.String())
	again := Parts{Enforcement: enforcement.Config{TakeOver: true}}
	Config{Count: 2, Own: new(int)}.Divide(&command.Program{Getenv: os.Getenv}, &again)
	require.True(t, again.Enforcement.TakeOver)
	Config{Count: 2, Own: new(int), Again: true}.Divide(&command.Program{Getenv: os.Getenv}, &again)
	require.False(t, again.Enforcement.TakeOver)
	r.Args = []string{"-c", "exit 7"}
	delete(r.failures, 0)
	ends()
	require.True(t, r.replaced[0])
	require.Empty(t, r.failures, "it is not started again")
	require.Equal(t, command.ExitReplaced, command.ExitCode(exitOf(r.exit)))
}
