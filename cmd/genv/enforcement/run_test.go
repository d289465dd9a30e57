package enforcement

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// What had to end and didn't is no success, and where nothing can be done is named, also if nothing had to.
func TestExitOfAHostThatCannotAct(t *testing.T) {
	failed := order.Outcome{PID: 1, Status: order.StatusFailed, Reason: "no signal"}
	for name, test := range map[string]struct {
		trial    *snapshot.Trial
		outcomes []order.Outcome
		want     string
	}{
		"unknown":           {},
		"able":              {trial: &snapshot.Trial{NoPidfds: true}},
		"state full":        {trial: &snapshot.Trial{State: "full"}},
		"unable":            {trial: &snapshot.Trial{Unable: "no helper"}, want: "no helper"},
		"nothing was done":  {outcomes: []order.Outcome{failed, {PID: 2, Status: order.StatusChanged}}, want: "failed: no signal"},
		"it did not end":    {outcomes: []order.Outcome{{PID: 1, Status: order.StatusSurvived, Reason: "hangs"}}, want: "survived: hangs"},
		"something was":     {outcomes: []order.Outcome{failed, {PID: 2, Status: order.StatusTerminated}}},
		"it changed":        {outcomes: []order.Outcome{{PID: 2, Status: order.StatusChanged}}},
		"it was to be left": {outcomes: []order.Outcome{{PID: 2, Status: order.StatusRefused}}},
	} {
		t.Run(name, func(t *testing.T) {
			round := &controller.Round{Cluster: snapshot.Cluster{Hosts: []snapshot.Host{
				{Name: "a", Snapshot: &snapshot.Snapshot{Trial: test.trial}},
			}}}
			if test.outcomes != nil {
				round.Results = []controller.OrderResult{{Host: "a", Execution: agent.Execution{Outcomes: test.outcomes}}}
			}
			err := new(loop).exit(round, false)
			if test.want == "" || name == "it did not end" {
				require.Equal(t, test.want != "", err != nil)
				require.NoError(t, (&loop{options: Options{Interval: time.Second}}).exit(round, false))
				require.Empty(t, unableHosts(round))
				return
			}
			require.Equal(t, command.ExitSomeFailed, command.ExitCode(err))
			require.Equal(t, "nothing can be ended on a", unableHosts(round))
			failures := failuresOfCycle(round)
			require.Len(t, failures, 1)
			require.Contains(t, failures[0].Error, test.want)
		})
	}
}

// A full disk of the record is named before the blocks that are kept for it are used up.
func TestAFullDiskOfTheRecordIsNamed(t *testing.T) {
	proctest.NeedRoot(t)
	dir := t.TempDir()
	require.NoError(t, unix.Mount("none", dir, "tmpfs", 0, "size=2m"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	var out bytes.Buffer
	l := &loop{record: &audit.Log{Path: dir + "/audit.jsonl"}, program: &command.Program{Now: time.Now}, screen: cycleWriter{err: &out}}
	l.noteFullDisks()
	require.Empty(t, out.String())
	require.Error(t, os.WriteFile(dir+"/filler", make([]byte, 3<<20), 0o600))
	l.noteFullDisks()
	require.Contains(t, out.String(), "Make room: "+dir+" (the record) has 0.0 GiB free")
}

// TestEndedBefore: what can't be read, or is too much, isn't taken for nothing.
func TestEndedBefore(t *testing.T) {
	start := time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	read := func(want int, complete bool) {
		t.Helper()
		list, all := endedBefore(path, start)()
		require.Len(t, list, want)
		require.Equal(t, complete, all)
	}
	add := func(n int) {
		var records []audit.Record
		for i := range n {
			records = append(records, audit.Record{Time: start.Add(-time.Hour), Kind: audit.KindOrder, Order: fmt.Sprint("r/", n, "/", i), PID: 5})
		}
		require.NoError(t, (&audit.Log{Path: path}).Append(records...))
	}
	read(0, true)
	add(2)
	read(2, true)
	add(maxEnded)
	read(maxEnded, false)
	require.NoError(t, os.WriteFile(path, []byte("not a record\n"), 0o600))
	read(0, false)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink("elsewhere", path))
	read(0, false)
}
