package local

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// A job renames itself while slow processes use up the time of its account: what was read of it still counts.
func TestAClaimIsKeptWhileItsAccountUsesUpItsTime(t *testing.T) {
	fs := proc.FS{Root: t.TempDir(), Reader: &proc.ReaderProcess{Command: []string{"sleep", "60"}}} // it never answers
	t.Cleanup(fs.Reader.Close)
	const stat = "100 (job) S 1 5 5 0 -1 0 1 0 0 0 5 6 0 0 20 0 1 0 5000 1 1 1 1 1 0 0 0 0 0 1 1 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 6000 9 0\n"
	var handles []*proc.Handle
	quota := &proc.Quota{}
	for _, pid := range []snapshot.PID{91, 92, 93, 94, 95, 96, 97, 98, 99, 100} {
		dir := filepath.Join(fs.Root, strconv.Itoa(int(pid)))
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600))
		h, err := fs.Open(pid)
		require.NoError(t, err)
		t.Cleanup(func() { _ = h.Close() })
		h.Quota = quota
		handles = append(handles, h)
	}
	for _, h := range handles[:9] { // each takes half of what is left
		_, err := readClaim(h)
		require.Error(t, err)
	}
	job := handles[9]
	last := environClaim{eid: "2020", of: proc.Stat{Start: 5000, EnvAddress: 6000, Name: "job"}}
	for name, row := range map[string]struct {
		now  proc.Stat
		kept bool
	}{
		"another name":     {proc.Stat{Start: 5000, EnvAddress: 6000, Name: "other"}, true},
		"another program":  {proc.Stat{Start: 5000, EnvAddress: 6001, Name: "other"}, true},
		"another process":  {proc.Stat{Start: 5001, EnvAddress: 6000, Name: "job"}, false},
		"of unknown start": {proc.Stat{}, false},
	} {
		for verify, before := range map[bool]processCache{
			false: {claims: map[snapshot.PID]environClaim{100: last}}, true: {unverified: map[snapshot.PID]environClaim{100: last}},
		} {
			o := &observer{before: before, after: newProcessCache()}
			got, err := o.claim(job, row.now)
			if !row.kept {
				require.ErrorIs(t, err, proc.ErrNotRead, name)
				require.Empty(t, o.after.claims, name)
				continue
			}
			require.NoError(t, err, "%s, verify: %v", name, verify)
			require.Equal(t, last, got, "the next look reads it again")
			require.Equal(t, last, o.after.claims[100])
		}
	}
}
