package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// A file of root's that a user has moved into the folder stays private, whatever is moved.
func TestARootsFileThatAUserMovedIntoTheFolderStaysPrivate(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		move func(*ownedHost) error
	}{
		"a handover of state that isn't root's": {"envs.json", func(h *ownedHost) error {
			_, err := h.store.HandOver(t.Context(), nil)
			return err
		}},
		"a takeover": {"genv.lock", func(h *ownedHost) error {
			_, err := h.store.TakeOver(t.Context(), nil)
			return err
		}},
		"a takeover that fails": {"genv.starts.json", func(h *ownedHost) error {
			_, _ = h.store.TakeOver(t.Context(), func(*state.Files) error { return errors.New("it failed") })
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newOwnedHost(t)
			planted := filepath.Join(h.dir, tt.file)
			require.NoError(t, os.RemoveAll(planted))
			require.NoError(t, os.WriteFile(planted, []byte("a secret"), 0o600))
			require.NoError(t, tt.move(h))
			entries, err := os.ReadDir(h.dir)
			require.NoError(t, err)
			for _, e := range entries {
				path := filepath.Join(h.dir, e.Name())
				if data, err := os.ReadFile(path); err == nil && string(data) == "a secret" {
					require.Equal(t, os.FileMode(0o600), mode(t, path), path)
				}
			}
		})
	}
}

// What a user has put into the folder doesn't keep it closed after a takeover that fails.
func TestAFailedTakeoverOpensTheFolderAgain(t *testing.T) {
	for name, plant := range map[string]func(path string) error{
		"a link":   func(path string) error { return os.Symlink("/etc/hostname", path) },
		"a FIFO":   func(path string) error { return syscall.Mkfifo(path, 0o666) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newOwnedHost(t)
			for _, file := range []string{"genv.identities.json", "genv.host.json"} {
				path := filepath.Join(h.dir, file)
				require.NoError(t, os.RemoveAll(path))
				require.NoError(t, plant(path))
			}
			require.NoError(t, os.RemoveAll(filepath.Join(h.dir, "devices")))
			require.NoError(t, os.Symlink("/etc", filepath.Join(h.dir, "devices")))
			_, err := h.store.TakeOver(t.Context(), nil)
			require.ErrorIs(t, err, folder.ErrUnsafe)
			require.Equal(t, os.FileMode(0o777), mode(t, h.dir))
			require.NoError(t, os.Chmod(h.dir, 0o755)) // as if it had been killed
			_, err = h.store.HandOver(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o777), mode(t, h.dir))
		})
	}
}

// A user who made the folder of the devices' locks can't keep others from locking devices.
func TestTheLocksOfDevicesStayForAllUsers(t *testing.T) {
	h := newOwnedHost(t)
	locks := filepath.Join(h.dir, "devices")
	require.NoError(t, os.MkdirAll(locks, 0o700))
	require.NoError(t, os.Chmod(locks, 0o700))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(locks, 4001, 4001))
	}
	h.takeOver(t)
	require.Equal(t, os.FileMode(0o777), mode(t, locks))
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(locks, &st))
	require.Equal(t, os.Geteuid(), int(st.Uid), "only root can close it")
	release, err := h.store.LockDevices(t.Context(), []snapshot.DeviceIndex{0})
	require.NoError(t, err)
	release()
}
