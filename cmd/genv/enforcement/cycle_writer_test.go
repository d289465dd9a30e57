package enforcement

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
)

// TestAHostSpeaksInItsOwnNameOnly: a newline in what it says it printed begins
// no line of another host's.
func TestAHostSpeaksInItsOwnNameOnly(t *testing.T) {
	var out, errs bytes.Buffer
	w := &cycleWriter{out: &out, err: &errs, bar: &render.Progress{}}
	w.Consume(&controller.Cycle{}, []enforce.Event{{
		Kind: enforce.EventOutcome, Host: "evil", Lines: []string{"x\n[good] Terminating process 1"}, Warnings: []string{"y\n[good] trouble"},
	}})
	require.NoError(t, w.write(&controller.Cycle{}))
	for line := range strings.Lines(out.String() + errs.String()) {
		require.True(t, strings.HasPrefix(line, "[evil] "), line)
	}
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
}
