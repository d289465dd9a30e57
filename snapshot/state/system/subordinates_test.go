package system

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

const passwd = `root:x:0:0:root:/root:/bin/bash
alice:x:1001:1001::/home/alice:/bin/bash
bob:x:1002:1002::/home/bob:/bin/bash
moved:x:165540:1003::/home/moved:/bin/bash
`

const subuids = `# comment
alice:100000:65536
1002:165536:65536

root:1001:1
root:400000000:65536
carol:300000:65536
carol:500000:10
bob:120000:100000
broken
broken:x:1
broken:700000:-1
broken:700000
zero:800000:0
huge:4294967290:65536
`

func TestSubordinates(t *testing.T) {
	etc := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644))
	}
	write("passwd", passwd)
	write("subuid", subuids)
	now := time.Now()
	s := &Subordinates{Etc: etc, Now: func() time.Time { now = now.Add(time.Minute); return now }}
	for _, tt := range []struct {
		name      string
		uid, want snapshot.UID
	}{
		{"root", 0, 0},
		{"an account", 1001, 1001},
		{"an account of a directory service", 50000, 50000},
		{"before the range", 99999, 99999},
		{"the first one", 100000, 1001},
		{"the last one", 165535, 1001},
		{"a range of a uid", 165536, 1002},
		{"the end of that range", 231071, 1002},
		{"after all ranges", 231072, 231072},
		{"in the ranges of two, that of the lower one", 130000, 1001},
		{"an account in a range", 165540, 165540},
		{"a range of root, who chooses uids for others", 400000001, 400000001},
		{"a user of a directory service, who counts as the first of the uids", 300007, 300000},
		{"and another range of that user", 500009, 300000},
		{"lines that say nothing", 700000, 700000},
		{"an empty range", 800000, 800000},
		{"up to the last uid", 4294967295, 4294967290},
		{"a range that a directory service hands out (FreeIPA)", 1<<31 + 65536 + 7, 1<<31 + 65536},
	} {
		require.Equal(t, tt.want, s.Owner(tt.uid), tt.name)
	}

	write("subuid", "alice:900000:1\n")
	require.NoError(t, os.Chtimes(filepath.Join(etc, "subuid"), time.Now(), time.Now().Add(time.Hour)))
	require.EqualValues(t, 1001, s.Owner(900000), "a change is noticed")
	require.EqualValues(t, 100000, s.Owner(100000))
	require.NoError(t, os.Remove(filepath.Join(etc, "subuid")))
	require.EqualValues(t, 900000, s.Owner(900000))
	require.EqualValues(t, 900000, (&Subordinates{Etc: filepath.Join(etc, "none")}).Owner(900000))
	write("subuid", "alice:900000:1\n"+strings.Repeat("#", 8<<20))
	require.EqualValues(t, 900000, s.Owner(900000), "too large")
	require.NoError(t, os.Remove(filepath.Join(etc, "subuid")))
	write("subuid", "alice:900000:1\n")
	require.NoError(t, os.Chmod(filepath.Join(etc, "subuid"), 0o666))
	require.EqualValues(t, 900000, s.Owner(900000), "others may write it")
}

func FuzzSubordinates(f *testing.F) {
	f.Add(subuids)
	f.Add("a:0:4294967295\nb:5:5")
	f.Fuzz(func(t *testing.T, text string) {
		ranges := parseSubordinates(text, map[string]snapshot.UID{"alice": 1001})
		for i := range ranges {
			require.LessOrEqual(t, ranges[i].First, ranges[i].Last)
			if i > 0 {
				require.Less(t, ranges[i-1].Last, ranges[i].First)
			}
		}
	})
}
