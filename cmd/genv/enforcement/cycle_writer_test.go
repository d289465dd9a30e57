package enforcement

import (
	"bytes"
	"strings"
	"testing"
	"time"

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
	require.NoError(t, w.write(&controller.Cycle{}, nil))
	for line := range strings.Lines(out.String() + errs.String()) {
		require.True(t, strings.HasPrefix(line, "[evil] "), line)
	}
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
}

// TestHowLongAFindingWaits: it is judged some time after its cycle began, for which it doesn't
// wait longer than the policy says.
func TestHowLongAFindingWaits(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	for due, text := range map[time.Duration]string{
		40*time.Second + 700*time.Millisecond: " (waits for 40s)",
		700 * time.Millisecond:                " (waits for 1s)",
		0:                                     " (waits for more cycles)",
		-time.Second:                          " (waits for more cycles)",
	} {
		require.Equal(t, text, waitOf(&enforce.Finding{Pending: true, Due: begin.Add(due)}, begin))
	}
	require.Empty(t, waitOf(&enforce.Finding{Due: begin.Add(time.Hour), Terminate: []enforce.ProcessRef{{PID: 1}}}, begin), "nothing is pending")
}
