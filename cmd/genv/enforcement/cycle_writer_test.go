package enforcement

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
)

// TestAHostSpeaksInItsOwnNameOnly: a newline in what it says it printed begins
// no line of another host's.
func TestAHostSpeaksInItsOwnNameOnly(t *testing.T) {
	var out, errs bytes.Buffer
	w := &cycleWriter{out: &out, err: &errs}
	execution := agent.Execution{Lines: []string{"x\n[good] Terminating process 1"}, Warnings: []string{"y\n[good] trouble"}}
	require.NoError(t, w.write(controller.Cycle{Actions: []controller.Action{{Host: "evil", Execution: execution}}}))
	for line := range strings.Lines(out.String() + errs.String()) {
		require.True(t, strings.HasPrefix(line, "[evil] "), line)
	}
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
}
