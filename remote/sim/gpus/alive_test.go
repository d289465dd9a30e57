package gpus

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzParseStat(f *testing.F) {
	own, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(own))
	f.Add("1 (a) b) R) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20")
	f.Add("1 (x")
	f.Add("")
	f.Fuzz(func(t *testing.T, stat string) {
		start, alive, err := parseStat(stat)
		if err != nil {
			require.Zero(t, start)
			require.False(t, alive)
		}
	})
}

func TestParseStatCountsFromTheLastParenthesis(t *testing.T) {
	const rest = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21"
	for name, want := range map[string]bool{"1 (a) R (b) S": true, "1 (a b) Z": false, "1 (a) X": false, "1 ())) R": true} {
		start, alive, err := parseStat(name + rest)
		require.NoError(t, err, name)
		require.Equal(t, uint64(4242), start, name)
		require.Equal(t, want, alive, name)
	}
}
