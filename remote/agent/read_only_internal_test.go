package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

const statuses = "Name:\tpython3\nPid:\t7\nUid:\t1001\t1001\t1001\t1001\nName:\tother\nPid:\t9\nUid:\t0\t0\t0\t0\n"

func TestParseStatuses(t *testing.T) {
	p := &snapshot.Process{PID: 7}
	parseStatuses([]byte(statuses), map[string]*snapshot.Process{"7": p})
	uid := snapshot.UID(1001)
	require.Equal(t, &snapshot.Process{PID: 7, Name: "python3", UID: &uid}, p, "and nothing of a process that was not asked for")
}

// FuzzParseStatuses: a host may say what it likes; only what was asked for is
// named, by names that may stand in a snapshot.
func FuzzParseStatuses(f *testing.F) {
	f.Add([]byte(statuses))
	f.Add([]byte("Uid:\t1\nPid:\t7\nName:\t\x1b[2J\nPid:\t7\nUid:\t99999999999\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &snapshot.Process{PID: 7}
		parseStatuses(data, map[string]*snapshot.Process{"7": p})
		require.Equal(t, snapshot.PID(7), p.PID)
		require.NoError(t, snapshot.CheckText("name", p.Name))
	})
}
