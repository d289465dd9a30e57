package enforcement_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
)

// A leader to which etcd is lost, and which is elected again, goes on with what it knows, also
// with what operators asked for meanwhile. What they ask for while no controller runs counts
// from the next start on, although etcd doesn't know of it.
func TestALeaderThatIsElectedAgain(t *testing.T) {
	t.Parallel()
	e := newSimulatedElectors(t, &inprocess.Server{Name: "a", Handler: genvhost.New(outsiders(1))})
	policy, socket, state := filepath.Join(e.dir, "policy.yaml"), filepath.Join(e.dir, "socket"), filepath.Join(e.dir, "only")
	require.NoError(t, os.WriteFile(policy, []byte("defaults:\n  non-env-processes: true\n  warn: {for: 1h}\n"), 0o600))
	exempt := func(device string, args ...string) string {
		out, _ := exec.Command(genvtest.Program(t), append([]string{"remote", "exempt", "--host", "a", "--device", device, "--for", "1h", "--reason", "a test"}, args...)...).CombinedOutput()
		return string(out)
	}
	d := e.start("only", "--policy", policy, "--socket", socket)
	before := d.next(func(c enforcement.CycleDocument) bool { return !c.Standby && len(c.Findings) == 1 })

	lost := false // it was asked while it led without etcd, which a busy machine may take too long for
	for try := 0; !lost && try < 10; try++ {
		e.etcd.Kill(0)
		said := exempt("6", "--socket", socket)
		lost = strings.Contains(said, "kept here, but not in etcd, so it is lost if another controller takes over")
		d.is(election.Expired)
		e.etcd.Restart(0)
		d.is(election.Leading)
	}
	require.True(t, lost)
	after := d.next(func(c enforcement.CycleDocument) bool { return !c.Standby && len(c.Findings) == 1 })
	require.Equal(t, before.Findings[0].ID, after.Findings[0].ID)
	require.WithinDuration(t, before.Findings[0].Since, after.Findings[0].Since, time.Millisecond)
	require.Len(t, after.Exemptions, 1)

	d.signal(syscall.SIGTERM)
	d.exits(command.ExitOK)
	require.Contains(t, exempt("7", "--socket", "off", "--state-dir", state), "exempt")
	again := e.start("only", "--policy", policy, "--socket", socket).is(election.Leading)
	require.Len(t, again.Exemptions, 2)
	require.WithinDuration(t, before.Findings[0].Since, again.Findings[0].Since, time.Millisecond)
}
