package inprocess_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
)

func newMachine(t *testing.T) *testfleet.Machine {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	m, err := testfleet.NewMachine(filepath.Join(t.TempDir(), "host"), gpus.Devices("test", 4, "NVIDIA H100 80GB HBM3", 81559), program)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// execution is a host whose genv is this test binary.
func execution(t *testing.T) *inprocess.Exec {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	e := &inprocess.Exec{Genv: program, Machine: newMachine(t)}
	e.Environ = []string{helperVariable + "=1", promptEnd}
	return e
}

func TestExecRunsTheProgram(t *testing.T) {
	fleet := startFleet(t, execution(t))
	client := login(t, fleet, fleet.Hosts()[0])
	for _, c := range []struct {
		line, stdin, stdout string
		status              int
	}{
		{"sudo -n genv args a 'b c' ''", "", "[\"a\" \"b c\" \"\"]\n", 0},
		{"sudo genv args", "", "[]\n", 0},
		{`genv args 'it'\''s' 'a;b' '$HOME'`, "", "[\"it's\" \"a;b\" \"$HOME\"]\n", 0},
		{"genv cat", "both\nlines", "both\nlines", 0},
		{"genv exit 7", "", "", 7},
		{"genv kill-yourself", "", "", 128 + 15},
		{"nvidia-smi -L", "", "", 0},
		{"other args", "", "", 127},
		{"genv args; genv exit 3", "", "", 3},
		{"(", "", "", 2},
	} {
		got := run(t, client, c.line, c.stdin)
		if c.status != 0 {
			require.Equal(t, c.status, status(t, got.err), c.line)
			continue
		}
		require.NoError(t, got.err, c.line)
		if c.stdout != "" {
			require.Equal(t, c.stdout, got.stdout, c.line)
		}
	}
}

func TestExecGivesTheMachinesEnvironmentAndNoOther(t *testing.T) {
	t.Setenv("SECRET_OF_THE_CALLER", "x")
	e := execution(t)
	fleet := startFleet(t, e)
	got := run(t, login(t, fleet, fleet.Hosts()[0]), "genv environ", "")
	require.NoError(t, got.err)
	require.ElementsMatch(t, append(e.Machine.Environ(), append(e.Environ, "PWD="+e.Machine.Dir)...), strings.Fields(got.stdout))
}

func TestACommandEndsWithItsClient(t *testing.T) {
	for name, leave := range map[string]func(*inprocess.Fleet, func()){
		"the client goes": func(_ *inprocess.Fleet, disconnect func()) { disconnect() },
		"the fleet goes":  func(f *inprocess.Fleet, _ func()) { f.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			fleet := startFleet(t, execution(t))
			client := login(t, fleet, fleet.Hosts()[0])
			session, err := client.NewSession()
			require.NoError(t, err)
			stdout, err := session.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, session.Start("genv stay"))
			line := make([]byte, 16)
			n, err := stdout.Read(line)
			require.NoError(t, err)
			pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
			require.NoError(t, err)
			leave(fleet, func() { _ = client.Close() })
			require.Eventually(t, func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }, patience, time.Millisecond)
		})
	}
}

func TestExecWithoutTheProgram(t *testing.T) {
	fleet := startFleet(t, &inprocess.Exec{Genv: "/nonexistent/genv", Machine: newMachine(t)})
	got := run(t, login(t, fleet, fleet.Hosts()[0]), "genv usage snapshot", "")
	require.Equal(t, 127, status(t, got.err))
	require.Contains(t, got.stderr, "not found")
}
