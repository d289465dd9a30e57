package text

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompactHosts(t *testing.T) {
	for _, row := range []struct {
		names string
		want  string
	}{
		{"", ""},
		{"a", "a"},
		{"gpu-03.lab gpu-07.lab gpu-08.lab gpu-09.lab gpu-10.lab gpu-11.lab gpu-12.lab", "gpu-[03,07-12].lab"},
		{"gpu-8 gpu-9 gpu-10 gpu-11", "gpu-[8-11]"},
		{"gpu-08 gpu-9 gpu-10", "gpu-[08,9-10]"},
		{"gpu-9 gpu-09 gpu-10", "gpu-[09-10,9]"},
		{"gpu-1 gpu-1 gpu-1", "gpu-1"},
		{"rack1-gpu1 rack1-gpu2 rack2-gpu1 rack2-gpu2", "rack[1-2]-gpu[1-2]"},
		{"rack1-gpu1 rack1-gpu2 rack2-gpu1", "rack1-gpu[1-2] rack2-gpu1"},
		{"alpha beta gpu-1 gpu-2", "alpha beta gpu-[1-2]"},
		{"gpu-2 alpha gpu-1", "gpu-[1-2] alpha"},
		{"10.0.0.3 10.0.0.4 10.0.1.3", "10.0.0.[3-4] 10.0.1.3"},
		{"fe80::1 fe80::2", "fe80::1 fe80::2"},
		{"a[1-2] a\x1b1 a\x1b2 -1 -2", "a[1-2] a\x1b1 a\x1b2 -1 -2"},
		{"n999999999 n1000000000 n1000000001", "n999999999 n1000000000 n1000000001"},
		{"GPU-1 gpu-2 gpu gpu1", "GPU-1 gpu-2 gpu gpu1"},
	} {
		require.Equal(t, row.want, strings.Join(CompactHosts(strings.Fields(row.names)), " "), row.names)
	}
}

// expandAll is what patterns match.
func expandAll(t *testing.T, patterns []string) []string {
	var names []string
	for _, pattern := range patterns {
		p, err := ParseHosts(pattern)
		require.NoError(t, err, pattern)
		names = append(names, p.Expand()...)
	}
	slices.Sort(names)
	return names
}

// TestCompactHostsProperty: the patterns expand to the names, each once, whatever the names
// and their order, and a full range is one pattern.
func TestCompactHostsProperty(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	formats := []string{"gpu-%d", "gpu-%02d", "gpu%03d.lab", "r%d-n%02d", "10.0.%d.%d", "%d%s", "x%dy%dz"}
	for range 2000 {
		set := make(map[string]bool)
		for range random.IntN(60) {
			format := formats[random.IntN(len(formats))]
			values := []any{random.IntN(120), random.IntN(12)}
			if strings.HasSuffix(format, "%s") {
				values[1] = string(rune('a' + random.IntN(2)))
			}
			set[fmt.Sprintf(format, values[:strings.Count(format, "%")]...)] = true
		}
		var names []string
		for name := range set {
			names = append(names, name)
		}
		patterns := CompactHosts(names)
		require.LessOrEqual(t, len(patterns), len(names))
		require.Equal(t, slices.Sorted(slices.Values(names)), expandAll(t, patterns), "%q", patterns)
	}
}

// FuzzCompactHosts: names are never lost, and none is added, whatever they contain.
func FuzzCompactHosts(f *testing.F) {
	f.Add("gpu-01 gpu-02 gpu-10 alpha")
	f.Add("1 01 001 2 02 9 09 10 010")
	f.Add("a1b2 a1b3 a2b2 a2b3 fe80::1 x[1] \x00\xff")
	f.Fuzz(func(t *testing.T, list string) {
		names := strings.Split(list, " ")
		var got []string
		for _, pattern := range CompactHosts(names) {
			p, err := ParseHosts(pattern)
			if slices.Contains(names, pattern) || err != nil {
				require.Contains(t, names, pattern)
				got = append(got, pattern)
				continue
			}
			got = append(got, p.Expand()...)
		}
		slices.Sort(got)
		slices.Sort(names)
		require.Equal(t, slices.Compact(names), got)
	})
}

func TestShortHosts(t *testing.T) {
	require.Empty(t, ShortHosts(nil, 10))
	require.Equal(t, "gpu-[1-3], x", ShortHosts([]string{"gpu-1", "gpu-2", "gpu-3", "x"}, 40))
	require.Equal(t, "alpha, beta and 2 more", ShortHosts([]string{"alpha", "beta", "gamma", "delta"}, 13))
	require.Equal(t, `a\x1b[2J`, ShortHosts([]string{"a\x1b[2J"}, 40))
	var odd []string
	for i := range 1000 {
		odd = append(odd, fmt.Sprintf("gpu-%04d", 2*i))
	}
	require.Len(t, []rune(ShortHosts(odd, 100)), 200)
}
