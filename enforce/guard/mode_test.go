package guard_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/guard"
)

func TestModesAreWrittenAsTheyAreRead(t *testing.T) {
	for _, m := range []guard.Mode{guard.Off, guard.Watch, guard.Enforce} {
		b, err := json.Marshal(m)
		require.NoError(t, err)
		var read guard.Mode
		require.NoError(t, json.Unmarshal(b, &read))
		require.Equal(t, m, read)
		parsed, err := guard.ParseMode(m.String())
		require.NoError(t, err)
		require.Equal(t, m, parsed)
	}
	require.Equal(t, []string{"off", "watch", "enforce"}, guard.Modes())
}

func TestOtherModesAreRefused(t *testing.T) {
	for _, name := range []string{"", "on", "OFF", "Watch", "enforce ", "2"} {
		_, err := guard.ParseMode(name)
		require.ErrorContains(t, err, "expected off, watch or enforce", name)
	}
	for _, m := range []guard.Mode{-1, 3} {
		require.False(t, m.Valid())
		_, err := json.Marshal(m)
		require.Error(t, err)
		require.NotEmpty(t, m.String())
	}
}
