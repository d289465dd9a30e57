package local_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMachineID(t *testing.T) {
	for name, row := range map[string]struct{ file, want string }{
		// As by `systemd-id128 machine-id -a 3b0e6c1f-529d-4a77-8c41-d25e90f61ab8`.
		"as systemd does it": {"0123456789abcdef0123456789abcdef\n", "87246ed2bb0547f6ac064fe794dc104a"},
		"without a newline":  {"0123456789abcdef0123456789abcdef", "87246ed2bb0547f6ac064fe794dc104a"},
		"never booted":       {"uninitialized\n", ""},
		"cut":                {"0123456789abcdef\n", ""},
		"empty":              {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.MachineIDFile = filepath.Join(t.TempDir(), "machine-id")
			require.NoError(t, os.WriteFile(m.MachineIDFile, []byte(row.file), 0o644))
			require.Equal(t, row.want, m.snapshot().MachineID)
		})
	}
}

func TestStateFolder(t *testing.T) {
	machine, store := realMachine(t)
	machine.SMI = listed{}
	s, err := machine.Snapshot(t.Context())
	require.NoError(t, err)
	folder, err := store.FolderID()
	require.NoError(t, err)
	require.Equal(t, folder, s.StateFolder)
	require.Regexp(t, `^\d+:\d+/\d+$`, folder)

	other, _ := realMachine(t)
	other.SMI = listed{}
	s, err = other.Snapshot(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, folder, s.StateFolder)
}
