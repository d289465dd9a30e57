package system

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFirstUID(t *testing.T) {
	for text, want := range map[string]int{
		"": 1000, "# UID_MIN 500\n": 1000, "UID_MIN\t\t 500\nUID_MAX 60000\n": 500, "UID_MIN 0\n": 1000, "UID_MIN many\n": 1000, "SYS_UID_MIN 101\nUID_MIN 10000": 10000,
	} {
		require.EqualValues(t, want, firstUID(text), text)
	}
}
