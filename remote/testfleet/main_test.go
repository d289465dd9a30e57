package testfleet_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
)

// promptEnd spares a program with the race detector its second of waiting at
// its end.
const promptEnd = "GORACE=atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "nvidia-smi" {
		os.Exit(gpus.Main(os.Args[1:], os.Stdout, os.Stderr, os.Getenv))
	}
	goleak.VerifyTestMain(m)
}

func newMachine(t *testing.T) *testfleet.Machine {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	m, err := testfleet.NewMachine(filepath.Join(t.TempDir(), "host"), gpus.Devices("test", 4, "NVIDIA H100 80GB HBM3", 81559), program)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}
