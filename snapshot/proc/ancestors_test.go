package proc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

func TestAncestors(t *testing.T) {
	fs := mount(t)
	for _, row := range []struct{ pid, parent int }{{10, 1}, {11, 10}, {12, 11}, {20, 0}, {30, 29}, {40, 41}, {41, 40}} {
		add(t, fs, snapshot.PID(row.pid), map[string]string{"stat": statLine(row.pid, "sh", "S", row.parent, 0, 1, 5)})
	}
	for _, row := range []struct {
		what string
		pid  snapshot.PID
		want []snapshot.PID
	}{
		{"up to PID 1", 12, []snapshot.PID{11, 10, 1}},
		{"PID 1 has none", 1, nil},
		{"the first of a namespace", 20, nil},
	} {
		got, err := fs.Ancestors(row.pid)
		require.NoError(t, err, row.what)
		require.Equal(t, row.want, got, row.what)
	}
	_, err := fs.Ancestors(30) // its parent has ended, and it never gets another
	require.ErrorIs(t, err, proc.ErrGone)
	_, err = fs.Ancestors(40) // a ring, which no kernel makes
	require.ErrorIs(t, err, proc.ErrUnreadable)
}
