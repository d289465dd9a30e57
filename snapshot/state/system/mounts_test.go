package system

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// TestUsersMountIsNew: what is mounted or unmounted is seen at once, also for the second time.
func TestUsersMountIsNew(t *testing.T) {
	proctest.NeedRoot(t)
	dir := t.TempDir()
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	for range 3 {
		require.Empty(t, UsersMount(Mountinfo(""), dir))
		require.Empty(t, UsersMount(Mountinfo(""), dir))
		require.NoError(t, unix.Mount("none", dir, "tmpfs", 0, "uid=4002"))
		require.Contains(t, UsersMount(Mountinfo(""), dir), "uid 4002")
		require.NoError(t, unix.Mount("none", dir, "tmpfs", 0, "uid=4003"))
		require.Contains(t, UsersMount(Mountinfo(""), dir), "uid 4002")
		require.NoError(t, unix.Unmount(dir, 0))
		require.NotContains(t, UsersMount(Mountinfo(""), dir), "uid 4003")
		require.NoError(t, unix.Unmount(dir, 0))
	}
}

// TestMountsOfAnotherProc: its list is read each time.
func TestMountsOfAnotherProc(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "self"), 0o755))
	for line, uid := range map[string]string{
		"90 22 0:99 / /data rw - tmpfs none rw,uid=4002\n":                "4002",
		"90 22 0:99 / /data/envs rw - fuse.sshfs host: rw,user_id=4003\n": "4003",
		"90 22 0:99 / /data rw - fuse  rw,user_id=4004\n":                 "4004", // fusermount -o fsname=
		"90 22 0:99 /a\u00a0b /data rw - fuse x rw,user_id=4005\n":        "4005", // the kernel escapes no other blanks
	} {
		require.NoError(t, os.WriteFile(filepath.Join(root, "self/mountinfo"), []byte(line), 0o644))
		require.Contains(t, UsersMount(Mountinfo(root), "/data"), "uid "+uid)
	}
}

func TestIsOwn(t *testing.T) {
	for name, tt := range map[string]struct {
		lines string
		want  bool
	}{
		"nothing of its own":    {"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n", true},
		"a service":             {"22 1 8:1 / / ro - ext4 /dev/sda1 rw\n90 22 8:1 /var/tmp /var/tmp rw - ext4 /dev/sda1 rw\n", true},
		"a container's service": {"22 1 8:1 /c/1 / ro - ext4 x rw\n90 22 8:1 /c/1/var/tmp /var/tmp rw - ext4 x rw\n", true},
		"a folder of the host":  {"22 1 8:1 /c/1 / rw - ext4 x rw\n90 22 8:1 /var/tmp/genv /var/tmp/genv rw - ext4 x rw\n", false},
		"the folder alone":      {"22 1 8:1 / / rw - ext4 x rw\n90 22 8:1 /var/tmp/genv /var/tmp/genv rw - ext4 x rw\n", false},
		"with an overlay":       {"22 1 0:50 / / rw - overlay x rw\n90 22 8:1 /var/tmp /var/tmp rw - ext4 x rw\n", false},
		"PrivateTmp=":           {"22 1 8:1 / / rw - ext4 x rw\n90 22 8:1 /var/tmp/p/tmp /var/tmp rw - ext4 x rw\n", false},
		"covered":               {"22 1 8:1 / / rw - ext4 x rw\n90 22 8:1 /var/tmp /var/tmp rw - ext4 x rw\n91 90 0:9 / /var/tmp rw - tmpfs x rw\n", false},
		"a name that begins so": {"22 1 8:1 / / rw - ext4 x rw\n90 22 0:9 / /var/tm rw - tmpfs x rw\n", true},
		"nothing":               {"", false},
	} {
		require.Equal(t, tt.want, IsOwn(tt.lines, "/var/tmp/genv"), name)
	}
}

func TestIsPrivate(t *testing.T) {
	const root = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
	for name, tt := range map[string]struct {
		line string
		want bool
	}{
		"nothing of its own":   {"", false},
		"systemd":              {"90 22 8:1 /var/tmp/systemd-private-ab-x.service-cd/tmp /var/tmp rw - ext4 /dev/sda1 rw\n", true},
		"pam_namespace":        {"90 22 8:1 /var/tmp/tmp-inst/alice /var/tmp rw - ext4 /dev/sda1 rw\n", true},
		"a file system":        {"90 22 8:2 / /var/tmp rw - ext4 /dev/sda2 rw\n", false},
		"a subvolume":          {"90 22 0:31 /@/var/tmp /var/tmp rw - btrfs /dev/sda2 rw\n", false},
		"a subvolume above it": {"90 22 0:31 /@var /var rw - btrfs /dev/sda2 rw\n", false},
		"a line that is none":  {"90 22\n", false},
	} {
		require.Equal(t, tt.want, IsPrivate(root+tt.line, "/var/tmp"), name)
	}
}
