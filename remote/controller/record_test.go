package controller_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// full is a log that cannot be written from some call on.
type full struct {
	audit.Log
	calls, from int
}

var errFull = errors.New("no space left on device")

func (f *full) Append(records ...audit.Record) error {
	if f.calls++; f.calls > f.from {
		return errFull
	}
	return f.Log.Append(records...)
}

func (f *full) Reserve(int64) error {
	if f.calls++; f.calls > f.from {
		return errFull
	}
	return nil
}

func TestNothingIsDoneUnrecorded(t *testing.T) {
	for from, acts := range map[int]bool{0: false, 1: false, 2: false, 3: true} { // what waits, findings, the room for outcomes, outcomes
		for _, anyway := range []bool{false, true} {
			t.Run(fmt.Sprint(from, anyway), func(t *testing.T) {
				p := newFakeFleet(t)
				log := &full{Log: audit.Log{Path: filepath.Join(t.TempDir(), "audit.jsonl")}, from: from}
				c := p.controller(log)
				c.ActUnrecorded = anyway
				require.ErrorIs(t, cycleOf(t.Context(), c, strict{notify: true}).Unrecorded, errFull)
				require.Equal(t, acts || anyway, len(p.signals) == 4)
				require.Equal(t, acts || anyway, len(p.messages) > 0)

				p.hosts["b"] = append(p.hosts["b"], 9)
				cycleOf(t.Context(), c, strict{})
				require.Equal(t, anyway, p.signals[9] == 1, "as long as the log cannot be written")
				log.from = 1000
				require.NoError(t, cycleOf(t.Context(), c, strict{}).Unrecorded)
				require.Equal(t, 1, p.signals[9])
			})
		}
	}
}

// On a disk that is full when a cycle begins, full in the middle of it and free
// again, the log ends up with an outcome for each thing that was to be done.
func TestAFullDiskLosesNoOutcome(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("only root can mount a small file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	p := newFakeFleet(t)
	path := filepath.Join(dir, "audit.jsonl")
	c := p.controller(&audit.Log{Path: path})
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_ = os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 1<<20), 0o600) // as much as fits
	for range 3 {
		require.ErrorIs(t, cycleOf(t.Context(), c, strict{}).Unrecorded, unix.ENOSPC)
	}
	require.Empty(t, p.signals)
	require.NoError(t, os.Remove(filepath.Join(dir, "ballast")))
	require.NoError(t, cycleOf(t.Context(), c, strict{}).Unrecorded)
	require.Len(t, p.signals, 4)
	entries, damage, err := audit.History(path, audit.Filter{})
	require.NoError(t, err)
	require.Zero(t, damage)
	status := map[order.OutcomeStatus]int{}
	for _, e := range entries {
		status[e.Status]++
	}
	require.Equal(t, map[order.OutcomeStatus]int{order.StatusFailed: 4, order.StatusTerminated: 4}, status)
}

// What was done without the log is in it, with its reasons, as soon as it can be written.
func TestWhatIsDoneUnrecordedIsRecordedLater(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "log")
	path := filepath.Join(folder, "audit.jsonl")
	p := newFakeFleet(t)
	c := p.controller(&audit.Log{Path: path})
	c.ActUnrecorded = true
	for number := range 2 { // the second begins while records wait
		p.hosts["b"] = append(p.hosts["b"], snapshot.PID(9+number))
		require.ErrorIs(t, cycleOf(t.Context(), c, strict{}).Unrecorded, os.ErrNotExist)
	}
	require.Len(t, p.signals, 6)
	require.NoError(t, os.Mkdir(folder, 0o700))
	require.NoError(t, cycleOf(t.Context(), c, strict{}).Unrecorded)
	entries, damage, err := audit.History(path, audit.Filter{})
	require.NoError(t, err)
	require.Zero(t, damage)
	require.Len(t, entries, 6)
	for _, e := range entries {
		require.Equal(t, order.StatusTerminated, e.Status)
		require.NotZero(t, e.Judged, "its finding")
	}
}
