package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The rows are taken of commands that work; how fast is for `make bench`.
func TestHostRows(t *testing.T) {
	genv := filepath.Join(t.TempDir(), "genv")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", genv, "../genv")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	b := &bench{genv: genv, runs: 1}
	rows, err := b.hostRows(t.Context())
	require.NoError(t, err)
	require.Len(t, rows, 8)
	for _, r := range rows {
		t.Logf("%s: %s (%s) %s", r.what, r.figure, r.goal, r.detail)
		require.NotEmpty(t, r.figure)
	}
}
