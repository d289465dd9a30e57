package amdgpu

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkClients searches for render nodes among 500 processes with 32 open files each.
func BenchmarkClients(b *testing.B) {
	null, err := os.Open(os.DevNull)
	require.NoError(b, err)
	defer null.Close()
	files := make([]*os.File, 32)
	for i := range files {
		files[i] = null
	}
	for range 500 {
		cmd := exec.Command("sleep", "1000")
		cmd.ExtraFiles = files
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		require.NoError(b, cmd.Start())
		b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	b.ReportAllocs()
	for b.Loop() {
		_, err := FS{}.clients(b.Context(), nil)
		require.NoError(b, err)
	}
}
