package testfleet_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
)

// TestInstall: a program can be had by several at a time, and each can be run at once.
func TestInstall(t *testing.T) {
	const smi = "remote/testfleet/gpus/nvidia-smi"
	dir := t.TempDir()
	var codes [4]int
	var group sync.WaitGroup
	for i := range codes {
		group.Go(func() {
			path := filepath.Join(dir, fmt.Sprint("nvidia-smi-", i))
			if err := testfleet.InstallProgram(smi, path); err != nil {
				t.Error(err)
				return
			}
			cmd := exec.Command(path, "-L")
			cmd.Env = []string{gpus.EnvFault + "=" + gpus.FaultNoDriver}
			_ = cmd.Run() // it fails with the code
			codes[i] = cmd.ProcessState.ExitCode()
		})
	}
	group.Wait()
	require.Equal(t, [4]int{9, 9, 9, 9}, codes)

	require.ErrorContains(t, testfleet.InstallProgram("cmd/none", filepath.Join(dir, "none")), "build cmd/none")
	require.NoFileExists(t, filepath.Join(dir, "none"))
}

func TestCopy(t *testing.T) {
	dir := t.TempDir()
	program, path := filepath.Join(dir, "program"), filepath.Join(dir, "copy")
	require.ErrorContains(t, testfleet.CopyProgram(program, path), program)
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o600))
	require.NoError(t, testfleet.CopyProgram(program, path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode())
}
