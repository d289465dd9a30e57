package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
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
			now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
			require.NoError(t, os.MkdirAll(filepath.Join(h.dir, "devices.corrupt-20261120-100000.000000000"), 0o755),
				"the link can't be moved aside")
			h.store = disk.New(h.dir, disk.Config{System: &fakeSystem{boot: "one"}, RootDir: h.root, Now: func() time.Time { return now }})
			_, err := h.store.TakeOver(t.Context(), nil)
			require.ErrorContains(t, err, "move aside")
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

// What a user has put at the place of the devices' locks is moved aside as it is, and leads
// nowhere: the takeover goes on with a folder of root's.
func TestNoFolderInThePlaceOfTheLocks(t *testing.T) {
	for name, plant := range map[string]func(path, elsewhere string) error{
		"a file": func(path, _ string) error { return os.WriteFile(path, []byte("mine"), 0o644) },
		"a FIFO": func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
		"a link": func(path, elsewhere string) error { return os.Symlink(elsewhere, path) },
		"a link to nothing": func(path, elsewhere string) error {
			return os.Symlink(filepath.Join(elsewhere, "missing"), path)
		},
		"a hard link": func(path, elsewhere string) error { return os.Link(filepath.Join(elsewhere, "secret"), path) },
	} {
		t.Run(name, func(t *testing.T) {
			h, elsewhere := newOwnedHost(t), t.TempDir()
			require.NoError(t, os.Chmod(elsewhere, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "secret"), []byte("root's"), 0o600))
			locks := filepath.Join(h.dir, "devices")
			require.NoError(t, os.RemoveAll(locks))
			require.NoError(t, plant(locks, elsewhere))
			planted, err := os.Lstat(locks)
			require.NoError(t, err)
			h.takeOver(t)
			made, err := os.Lstat(locks)
			require.NoError(t, err)
			require.Equal(t, os.ModeDir|0o777, made.Mode())
			aside, err := filepath.Glob(locks + ".corrupt-*")
			require.NoError(t, err)
			require.Len(t, aside, 1)
			moved, err := os.Lstat(aside[0])
			require.NoError(t, err)
			require.True(t, os.SameFile(planted, moved), "it was not copied")
			require.Equal(t, planted.Mode(), moved.Mode())
			require.Equal(t, os.FileMode(0o700), mode(t, elsewhere))
			require.Equal(t, os.FileMode(0o600), mode(t, filepath.Join(elsewhere, "secret")))
			left, err := os.ReadDir(elsewhere)
			require.NoError(t, err)
			require.Len(t, left, 1, "nothing was made there")
			release, err := h.store.LockDevices(t.Context(), []snapshot.DeviceIndex{0})
			require.NoError(t, err)
			release()
		})
	}
}
