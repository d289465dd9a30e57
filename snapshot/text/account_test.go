package text_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/text"
)

func TestCheckUsername(t *testing.T) {
	for _, name := range []string{
		"bob", "Bob", "b", "1004", "svc-gpu", "a.b_c", "ws$", "ann@corp.example", `CORP\jdoe`, "CORP+jdoe", "CORP/jdoe", "First Last", "müller", "o'brien",
		"李雷", "a=b", "x@y@z", strings.Repeat("a", 256),
	} {
		require.NoError(t, text.CheckUsername(name), name)
	}
	for name, want := range map[string]string{
		"":                       "the user name is empty",
		"-l":                     "begins with a dash",
		"a:b":                    "not a user name",
		"a,b":                    "not a user name",
		" a":                     "not a user name",
		"a ":                     "not a user name",
		"a\nb":                   "not a user name",
		"a\x1b[2J":               "not a user name",
		"a\xff":                  "not a user name",
		strings.Repeat("a", 257): "not a user name",
	} {
		require.ErrorContains(t, text.CheckUsername(name), want, "%q", name)
	}
}
