package host

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheParentDiesBeforeItIsWatched: the kernel tells of deaths after the
// question for them alone.
func TestTheParentDiesBeforeItIsWatched(t *testing.T) {
	require.ErrorContains(t, endWithParent(1<<22+7), "has ended")
}
