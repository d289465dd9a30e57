package gpus_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
)

const (
	patience = 20 * time.Second
	tick     = time.Millisecond
)

func TestWriteAndRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gpus.json")
	h := lab()
	h.Apps = []gpus.App{{PID: 7, Start: 1 << 60, Device: 1, UsedMiB: mib(3), Name: "ä \"x\""}, {PID: 8, UUID: "MIG-x"}}
	for range 2 { // over the old one too
		require.NoError(t, h.Write(path))
		got, err := gpus.Read(path)
		require.NoError(t, err)
		require.Equal(t, h, got)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "a temporary file is left")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode())
	require.Error(t, h.Write(filepath.Join(dir, "nowhere", "gpus.json")))
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = gpus.Read(path)
	require.ErrorContains(t, err, path)
}

func TestTheProgramItself(t *testing.T) {
	dir := t.TempDir()
	program, file := filepath.Join(dir, "nvidia-smi"), filepath.Join(dir, "gpus.json")
	require.NoError(t, testfleet.InstallProgram("remote/testfleet/gpus/nvidia-smi", program))
	require.NoError(t, lab().Write(file))
	cmd := exec.Command(program, "--query-gpu=index", "--format=csv,noheader")
	cmd.Env = []string{gpus.EnvFile + "=" + file}
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, "0\n1\n2\n", string(out))
}

func TestHangLastsUntilItIsKilled(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "nvidia-smi")
	require.NoError(t, testfleet.InstallProgram("remote/testfleet/gpus/nvidia-smi", program))
	cmd := exec.Command(program, "-L")
	cmd.Env = []string{gpus.EnvFault + "=" + gpus.FaultHang}
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Fatalf("it did not hang: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	require.NoError(t, cmd.Process.Kill())
	require.ErrorContains(t, <-ended, "killed")
}
