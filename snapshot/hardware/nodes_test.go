package hardware_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/hardware"
)

func TestHasNodes(t *testing.T) {
	mknod := func(dir, name string, major uint32) {
		if err := unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o666, int(unix.Mkdev(major, 255))); err != nil {
			t.Skip(err)
		}
	}
	for name, tt := range map[string]struct {
		make func(dir string)
		want bool
	}{
		"no driver":           {func(string) {}, false},
		"NVIDIA's":            {func(dir string) { mknod(dir, "nvidiactl", hardware.NodeMajor) }, true},
		"another major":       {func(dir string) { mknod(dir, "nvidiactl", 1) }, false},
		"a simulation's file": {func(dir string) { require.NoError(t, os.WriteFile(filepath.Join(dir, "nvidiactl"), nil, 0o600)) }, false},
		"Tegra":               {func(dir string) { mknod(dir, "nvidiactl", hardware.NodeMajor); mknod(dir, "nvgpu", 1) }, false},
		"WSL":                 {func(dir string) { mknod(dir, "dxg", 10) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tt.make(dir)
			require.Equal(t, tt.want, hardware.Catalog{Dev: dir}.HasNodes())
		})
	}
}
