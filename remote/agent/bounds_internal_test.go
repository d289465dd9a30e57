package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatAHostSaysIsBounded(t *testing.T) {
	kept := bounded([]string{strings.Repeat("x", 1<<20), "b", "c"}, 2)
	require.Len(t, kept, 2)
	require.Len(t, kept[0], maxLine)
	require.Equal(t, "b", kept[1])
	require.Empty(t, bounded(nil, 2))
}
