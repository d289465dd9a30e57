package text_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/text"
)

func TestHostGlobs(t *testing.T) {
	tests := []struct {
		glob, name string
		want       bool
	}{
		{"*", "gpu-01", true},
		{"gpu-*", "gpu-01", true},
		{"GPU-*", "gpu-01.", true},
		{"gpu-*.", "GPU-01", true},
		{"gpu-*", "gpu-", true},
		{"gpu-0?", "gpu-07", true},
		{"*.lab", "a.b.lab", true},
		{"*a*a*b", "aaaab", true},
		{"rack[1-2]-*", "rack2-gpu", true},
		{"rack[01-12]*[3-4]", "rack0713", true},
		{"?[1-3]", "32", true},
		{"gpu-*", "gpu", false},
		{"gpu-*", "xgpu-1", false},
		{"gpu-0?", "gpu-0", false},
		{"gpu-0?", "gpu-012", false},
		{"rack[1-2]-*", "rack3-gpu", false},
		{"rack[01-12]*", "rack1", false},
		{"*[1-3]", "gpu4", false},
		{"?", "", false},
		{"*b", "aaaa", false},
	}
	for _, test := range tests {
		g, err := text.ParseHostGlob(test.glob)
		require.NoError(t, err)
		require.Equal(t, test.want, g.Matches(test.name), "%s against %s", test.glob, test.name)
		require.Equal(t, test.glob, g.String())
	}
	for glob, want := range map[string]string{
		"gpu[*]":                   `"gpu[*]": "*" is not a range of numbers; write it as [01-16] or [1,3,5-8]`,
		"gpu[1-*":                  `"gpu[1-*": a bracket is not closed; write it as gpu[1-4]`,
		"gpu]*":                    `"gpu]*": a closing bracket without an opening one; write it as gpu[1-4]`,
		"gpu[a-c]*":                `"gpu[a-c]*": "a-c" is not a range of numbers; write it as [01-16] or [1,3,5-8]`,
		"-*":                       `"-*": a host name must begin with a letter or a digit`,
		"a;*":                      `"a;*": ';' is not allowed in a host name; use letters, digits, '-', '_' and '.'`,
		strings.Repeat("*a", 1000): `"*a*a*a*a*a*a*a*a*a*a"…: a host name has at most 253 characters`,
	} {
		_, err := text.ParseHostGlob(glob)
		require.EqualError(t, err, want)
	}
}

// FuzzParseHostGlob: a glob without wildcards matches what the same HostPattern matches, and
// a star around it matches that too.
func FuzzParseHostGlob(f *testing.F) {
	for _, seed := range []string{"gpu[01-16].lab", "a[1,3,5-8]b[1-2]", "*", "?a*", "rack[1-2]-*", "*[1-2]*[3-4]?", "[", "*]", "-*", "Ax.", "..", "*."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, word string) {
		g, err := text.ParseHostGlob(word)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		plain := strings.NewReplacer("*", "xyz", "?", "9").Replace(word)
		p, err := text.ParseHosts(plain)
		if err != nil {
			return
		}
		around, err := text.ParseHostGlob("*" + word + "*")
		require.Equal(t, len(word)+2 > 253, err != nil)
		names := p.Expand()
		for _, name := range names[:min(len(names), 20)] {
			require.True(t, g.Matches(strings.ToUpper(name)), "%q against %q", word, name)
			require.True(t, err != nil || strings.HasSuffix(word, ".") || around.Matches("a"+name+"b"), "%q around %q", word, name)
		}
	})
}
