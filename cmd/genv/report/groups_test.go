package report

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrimaryGroups(t *testing.T) {
	getent := func(_ context.Context, database string, keys ...string) ([]byte, error) {
		known := map[string]string{
			"passwd alice": "alice:x:1001:2001::/home/alice:/bin/sh\n", "passwd bob": "bob:x:1002:2002::/:/bin/sh\n",
			"group 2001": "vision:x:2001:\n", // 2002 has no name
		}
		out, err := "", error(nil)
		for _, key := range keys {
			if known[database+" "+key] == "" {
				err = errors.New("exit status 2")
			}
			out += known[database+" "+key]
		}
		return []byte(out), err
	}
	require.Equal(t, map[string]string{"alice": "vision"}, primaryGroups(t.Context(), getent, []string{"alice", "bob", "nobody-else"}))
	require.Empty(t, primaryGroups(t.Context(), getent, nil))
}
