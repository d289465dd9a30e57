package container

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParseCall: whatever an engine passes on, the real runtime gets the same words, and the
// id of a container is one of them.
func FuzzParseCall(f *testing.F) {
	for _, seed := range []string{
		"--root\n/r\n--log\n/l\ncreate\n--bundle\n/b\n--pid-file\n/p\nID", "run\n-d\n--bundle=/b\nID", "create\n--\nID", "create\n--bundle", "--real=/r\n--\ncreate\nID", "-\n--\n--=",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, "\n")
		c := parse(args)
		require.Equal(t, strings.Split(line, "\n"), c.args)
		require.NotEmpty(t, c.bundle)
		if c.id != "" {
			require.True(t, c.starts())
			require.Contains(t, args, c.id)
		}
		_, rest := ownFlags(args)
		require.True(t, strings.HasSuffix("\n"+line, "\n"+strings.Join(rest, "\n")) || len(rest) == 0)
	})
}
