package socket

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

func TestParseLogin(t *testing.T) {
	for text, want := range map[string]snapshot.UID{"1000": 1000, "0\n": 0, "4294967294": 4294967294} {
		require.Equal(t, &want, parseLogin(text))
	}
	for _, text := range []string{"4294967295", "", "-1", "x", "99999999999"} {
		require.Nil(t, parseLogin(text), text)
	}
}

// Without a connection the PID alone names the process, if it is there.
func TestLoginOfAProcess(t *testing.T) {
	var want *snapshot.UID
	if data, err := os.ReadFile("/proc/self/loginuid"); err == nil {
		want = parseLogin(string(data))
	}
	require.Equal(t, want, loginOf(-1, snapshot.PID(os.Getpid())))
	require.Nil(t, loginOf(-1, 1<<30))
}
