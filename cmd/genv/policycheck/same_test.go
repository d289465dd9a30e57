package policycheck

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/policy"
)

const passwd = "root:x:0:0::/root:/bin/sh\nbob:x:1003:100::/home/bob:/bin/sh\nbobalt:x:1003:100::/home/bob:/bin/sh\ncarol:x:1004:100::/:/bin/sh\n"

// directory answers as getent does where a directory also takes other names of its accounts.
func directory(t *testing.T) Getent {
	byKey := map[string]string{
		"1003": "bob:x:1003", "carol": "carol:x:1004", "1004": "carol:x:1004", "ann": "ann@corp.example:x:20002", "ann@corp.example": "ann@corp.example:x:20002",
		"20002": "ann@corp.example:x:20002", "rob": "rob:x:1003", "solo": "solo:x:20003", "20003": "solo:x:20003",
	}
	return func(_ context.Context, database string, keys ...string) ([]byte, error) {
		require.Equal(t, "passwd", database)
		var out strings.Builder
		missing := false
		for _, key := range keys {
			line, known := byKey[key]
			missing = missing || !known
			if known {
				out.WriteString(line + ":100::/home:/bin/sh\n")
			}
		}
		if missing {
			return []byte(out.String()), exec.CommandContext(t.Context(), "sh", "-c", "exit 2").Run()
		}
		return []byte(out.String()), nil
	}
}

func TestSameUsers(t *testing.T) {
	for _, test := range []struct {
		names []string
		want  policy.Aliases
	}{
		{nil, policy.Aliases{"bobalt": "bob"}},
		{[]string{"carol", "solo", "stranger", "1004"}, policy.Aliases{"bobalt": "bob"}},
		{[]string{"ann", "stranger"}, policy.Aliases{"bobalt": "bob", "ann": "ann@corp.example"}},
		{[]string{"ann@corp.example", "rob"}, policy.Aliases{"bobalt": "bob", "rob": "bob"}},
	} {
		got, err := sameUsers(t.Context(), test.names, []byte(passwd), directory(t))
		require.NoError(t, err)
		require.Equal(t, test.want, got, test.names)
	}
	_, err := sameUsers(t.Context(), []string{"x"}, nil, func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("no server") })
	require.ErrorContains(t, err, "no server")
	none, err := sameUsers(t.Context(), []string{"x"}, nil, func(context.Context, string, ...string) ([]byte, error) { return nil, exec.ErrNotFound })
	require.NoError(t, err)
	require.Empty(t, none)
}
