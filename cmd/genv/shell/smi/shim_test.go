package smi_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell/smi"
)

// harness has a shell script in the real nvidia-smi's place. What it is asked
// for beyond its rows is an error, and so is a hand-over that no row expects.
type harness struct {
	shim   smi.Shim
	stdout bytes.Buffer
	stderr bytes.Buffer
	handed [][]string
}

const program = `#!/bin/sh
case "$*" in
  "") cat "$SAMPLES/table-580.constructed.txt"; echo noise >&2;;
  -L) echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18;;
  -q) echo "something new";;
  "--query-gpu=index,name --format=csv,noheader") printf '0, H100\n1, H200\n';;
  "--query-gpu=index,foo --format=csv") echo 'Field "foo" is not a valid field to query.'; exit 2;;
  "-i 1") kill -9 $$;;
  *) echo "unexpected: $*"; exit 99;;
esac
`

func newHarness(t *testing.T, args ...string) *harness {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "nvidia-smi")
	require.NoError(t, os.WriteFile(path, []byte(program), 0o755))
	samples, err := filepath.Abs("testdata")
	require.NoError(t, err)
	h := &harness{}
	h.shim = smi.Shim{
		Real: path, Args: args, Environ: []string{"PATH=/usr/bin:/bin", "SAMPLES=" + samples},
		View:   func() (smi.View, error) { return view(1), nil },
		Stdout: &h.stdout, Stderr: &h.stderr,
		Exec: func(_ string, argv, _ []string) error {
			h.handed = append(h.handed, argv[1:])
			return nil
		},
	}
	return h
}

func TestShimShowsTheView(t *testing.T) {
	h := newHarness(t)
	status, err := h.shim.Run(context.Background())
	require.NoError(t, err)
	require.Zero(t, status)
	require.Equal(t, rewrite(t, sample(t, "table-580.constructed.txt"), view(1)), h.stdout.String())
	require.Equal(t, "noise\n", h.stderr.String())
	require.Empty(t, h.handed)

	h = newHarness(t, "--query-gpu=name", "--format=csv,noheader")
	status, err = h.shim.Run(context.Background())
	require.NoError(t, err)
	require.Zero(t, status)
	require.Equal(t, "H200\n", h.stdout.String())
}

func TestShimKeepsTheStatus(t *testing.T) {
	rows := []struct {
		args   []string
		stdout string
		status int
	}{
		{[]string{"-L"}, "Failed to initialize NVML: Driver/library version mismatch\n", 18},
		{[]string{"-q"}, "something new\n", 0},
		{[]string{"-i", "1"}, "", 137},
		{[]string{"-i", "0"}, "No devices were found\n", 6},
	}
	for _, row := range rows {
		h := newHarness(t, row.args...)
		status, err := h.shim.Run(context.Background())
		require.NoError(t, err)
		require.Equal(t, row.status, status, row.args)
		require.Equal(t, row.stdout, h.stdout.String())
		require.Empty(t, h.handed)
	}
}

func TestShimHandsOver(t *testing.T) {
	rows := map[string]*harness{
		"not understood":  newHarness(t, "dmon", "-c", "1"),
		"a refused field": newHarness(t, "--query-gpu=foo", "--format=csv"),
		"bypass":          newHarness(t, "-L"),
		"no books":        newHarness(t, "-L"),
	}
	rows["bypass"].shim.Bypass = true
	rows["no books"].shim.View = func() (smi.View, error) { return smi.View{}, errors.New("envs.json is corrupt") }
	for name, h := range rows {
		status, err := h.shim.Run(context.Background())
		require.NoError(t, err, name)
		require.Zero(t, status, name)
		require.Empty(t, h.stdout.String(), name)
		require.Equal(t, [][]string{h.shim.Args}, h.handed, name)
	}
	require.Equal(t, "genv: showing all devices of this host: envs.json is corrupt\n", rows["no books"].stderr.String())
	require.Empty(t, rows["bypass"].stderr.String())
}

func TestShimWithoutAProgram(t *testing.T) {
	h := newHarness(t)
	h.shim.Real = "/nonexistent/nvidia-smi"
	_, err := h.shim.Run(context.Background())
	require.ErrorIs(t, err, os.ErrNotExist)
	h.shim.Bypass = true
	h.shim.Exec = func(string, []string, []string) error { return os.ErrPermission }
	_, err = h.shim.Run(context.Background())
	require.ErrorIs(t, err, os.ErrPermission)
}
