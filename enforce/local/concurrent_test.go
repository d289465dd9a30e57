package local_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestConcurrentReports: a report that waits for a process delays neither another
// report nor the question that every snapshot asks, and each gets its own lines.
func TestConcurrentReports(t *testing.T) {
	stubborn, gentle := ready(t, "stubborn", in("7")), ready(t, "gentle", in("7"))
	slow, fast := stubborn.judged("7", 0), gentle.judged("7", 0)
	s := newScene(local.ExecutorOptions{Grace: time.Hour}, slow, fast)
	report := func(p snapshot.Process) enforce.Report {
		return enforce.Report{Terminate: []enforce.Termination{{Process: p}}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	signalled, done := make(chan string, 1), make(chan []enforce.Outcome, 1)
	go func() { done <- s.x.OnAction(func(line string) { signalled <- line }).Execute(ctx, report(slow)) }()
	require.Equal(t, report(slow).Terminate[0].String(), <-signalled)

	var lines []string
	outcomes := s.x.OnAction(func(line string) { lines = append(lines, line) }).Execute(t.Context(), report(fast))
	require.Equal(t, enforce.StatusTerminated, outcomes[0].Status)
	require.Equal(t, []string{report(fast).Terminate[0].String()}, lines)
	gentle.endedBy(unix.SIGTERM)
	uid := snapshot.UID(0)
	require.Empty(t, s.x.ProtectedName(&snapshot.Process{PID: slow.PID, UID: &uid}))
	require.Empty(t, done)
	cancel()
	require.Equal(t, enforce.StatusSignalled, (<-done)[0].Status)
	stubborn.answers()
}
