package nvidiasmi_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

func TestFind(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	for _, dir := range []string{"real", "shim", "chain", "hard", "notexec", "dir/nvidia-smi", "broken", "empty", "other"} {
		require.NoError(t, os.MkdirAll(at(dir), 0o755))
	}
	write := func(name string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(at(name), []byte("#!/bin/sh\n"), mode))
	}
	write("genv", 0o755)
	write("real/nvidia-smi", 0o755)
	write("other/nvidia-smi", 0o755)
	write("notexec/nvidia-smi", 0o644)
	require.NoError(t, os.Symlink(at("genv"), at("shim/nvidia-smi")))
	require.NoError(t, os.Symlink("../shim/nvidia-smi", at("chain/nvidia-smi")))
	require.NoError(t, os.Link(at("genv"), at("hard/nvidia-smi")))
	require.NoError(t, os.Symlink("nowhere", at("broken/nvidia-smi")))

	path := func(dirs ...string) string {
		for i, dir := range dirs {
			dirs[i] = at(dir)
		}
		return strings.Join(dirs, ":")
	}
	for _, row := range []struct{ what, path, self, want string }{
		{"the first one", path("real", "other"), at("genv"), "real"},
		{"not our link", path("shim", "real"), at("genv"), "real"},
		{"not a link to our link", path("chain", "real"), at("genv"), "real"},
		{"not our hard link", path("hard", "real"), at("genv"), "real"},
		{"not when we are called by the link", path("shim", "real"), at("shim/nvidia-smi"), "real"},
		{"not what cannot be run", path("notexec", "dir", "broken", "empty", "real"), at("genv"), "real"},
		{"not in the working folder", ":.:relative:" + path("real"), at("genv"), "real"},
		{"a link when nothing is ours", path("shim"), "", "shim"},
		{"a link when we cannot be found", path("shim"), at("gone"), "shim"},
	} {
		got, err := nvidiasmi.Find(row.path, row.self)
		require.NoError(t, err, row.what)
		require.Equal(t, at(row.want+"/nvidia-smi"), got, row.what)
	}
	for _, nowhere := range []string{"", ".", path("shim", "hard"), path("empty", "notexec")} {
		_, err := nvidiasmi.Find(nowhere, at("genv"))
		require.ErrorIs(t, err, nvidiasmi.ErrNotInstalled, nowhere)
	}
}
