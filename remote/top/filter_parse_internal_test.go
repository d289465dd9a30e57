package top

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"usr=bob":      `unknown field usr (did you mean "user"?)`,
		"util~5":       "util is a number: compare it with =, !=, <, <=, > or >=",
		"host<3":       "host is a text: compare it with =, !=, ~ or !~",
		"util<nan":     "util: nan is not a number",
		"util<much":    "util: much is not a number",
		"mem>40gb":     "mem: ",
		"user=":        "user=: a value is missing",
		`user="bob`:    `a closing " is missing`,
		"user!bob":     "write != or !~ after the field",
		"zzz=1":        "the fields are class command",
		"=bob":         `unknown field ""`,
		"util<\x1b[2J": `util: "?[2j" is not a number`,
	} {
		_, err := ParseFilter(text)
		require.ErrorContains(t, err, want, text)
	}
	_, err := ParseFilter(strings.Repeat("x", maxFilterLength+1))
	require.ErrorContains(t, err, "longer than")
}
