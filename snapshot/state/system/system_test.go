package system

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc"
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

// The look for files ends with the time for it, and not only its answer is dropped.
func TestTheLookForKernelFilesEndsInTime(t *testing.T) {
	home, me := t.TempDir(), snapshot.UID(os.Getuid())
	runtime, passwd := filepath.Join(home, ".local/share/jupyter/runtime"), filepath.Join(home, "passwd")
	require.NoError(t, os.MkdirAll(runtime, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(runtime, "kernel-k.json"), []byte("{}"), 0o600))
	require.NoError(t, os.WriteFile(passwd, []byte("me:x:"+strconv.FormatUint(uint64(me), 10)+":1::"+home+":/bin/sh\n"), 0o600))
	machine := New(proc.FS{Root: t.TempDir()}, nss.Passwd{File: passwd}).(procfs)
	k := Kernel{ID: "k", UID: me}
	folders, complete := machine.runtimeFolders(t.Context(), me, nil)
	require.True(t, complete)
	require.Equal(t, Alive, machine.kernelFileIn(t.Context(), folders, true, k))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, Unknown, machine.kernelFileIn(ctx, folders, true, k))
}

// A process of which the command line isn't read may be that of any kernel of its user, and of no other user's.
func TestKernelsWhileAProcessIsNotRead(t *testing.T) {
	child := exec.Command("sleep", "60")
	proctest.Start(t, child)
	pid, me := snapshot.PID(child.Process.Pid), snapshot.UID(os.Getuid())
	machine := New(proc.FS{}, nss.Passwd{}).(procfs)
	mine, others := Kernel{ID: "k", UID: me}, Kernel{ID: "k", UID: me + 1}
	require.Equal(t, map[Kernel]Liveness{mine: Gone, others: Gone}, machine.runningKernels([]snapshot.PID{pid}, []Kernel{mine, others}))
	machine.fs.Reader = &proc.ReaderProcess{Command: []string{"sh", "-c", "echo {}; exec sleep 60"}} // a helper that starts, and doesn't answer
	require.Equal(t, map[Kernel]Liveness{mine: Unknown, others: Gone}, machine.runningKernels([]snapshot.PID{pid}, []Kernel{mine, others}))
}

// A folder that doesn't answer holds the helper, and not this process, which couldn't end then.
func TestAKernelFolderThatDoesNotAnswer(t *testing.T) {
	machine, k := New(proc.FS{}, nss.Passwd{}).(procfs), Kernel{ID: "k", UID: snapshot.UID(os.Getuid())}
	machine.fs.Reader = &proc.ReaderProcess{Command: []string{"sh", "-c", "echo {}; exec sleep 60"}}
	require.Equal(t, Unknown, machine.kernelFileIn(t.Context(), []string{t.TempDir()}, true, k))
	began := time.Now()
	for range 100 {
		require.Equal(t, Unknown, machine.kernelFileIn(t.Context(), []string{t.TempDir()}, true, k))
	}
	require.Less(t, time.Since(began), 10*time.Second, "it is asked again after a while")
}

// However many users have folders that don't answer, a look ends in time.
func TestManyKernelFoldersThatDoNotAnswer(t *testing.T) {
	file, home := filepath.Join(t.TempDir(), "passwd"), t.TempDir()
	kernels, lines := map[snapshot.UID][]Kernel{}, ""
	for uid := snapshot.UID(70_001); uid < 70_013; uid++ {
		kernels[uid] = []Kernel{{ID: "k", UID: uid}}
		lines += fmt.Sprintf("u%d:x:%d:1::%s:/bin/sh\n", uid, uid, home)
	}
	require.NoError(t, os.WriteFile(file, []byte(lines), 0o600))
	machine := New(proc.FS{}, nss.Passwd{File: file}).(procfs)
	machine.fs.Reader = &proc.ReaderProcess{Command: []string{"sh", "-c", "echo {}; exec sleep 60"}}
	began := time.Now()
	for k, now := range machine.kernelFiles(nil, kernels) {
		require.Equal(t, Unknown, now, k)
	}
	require.Less(t, time.Since(began), 5*time.Second)
}
