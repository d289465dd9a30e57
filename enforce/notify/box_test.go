package notify_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func texts(list []notify.KeptMessage) (all []string) {
	for _, n := range list {
		all = append(all, n.Text)
	}
	return all
}

// own is the uid of this test, whose notices any test may keep; another one is for root.
func own() snapshot.UID { return snapshot.UID(os.Geteuid()) }

func newBox(t *testing.T) notify.Box { return notify.Box{Root: filepath.Join(t.TempDir(), "root")} }

func TestWhatIsKeptIsBounded(t *testing.T) {
	box := newBox(t)
	require.NoError(t, box.Keep(own(), "old", nil, noon.Add(-notify.MaxKeptAge-time.Second)))
	for i := range 30 {
		var ids []string
		for j := range 256 {
			ids = append(ids, fmt.Sprintf("non-env-processes/gpu-01.lab.example.org/%d/%d", 1000+i, 1000+j))
		}
		require.NoError(t, box.Keep(own(), fmt.Sprint(i, strings.Repeat("ä", 10_000)), nil, noon, ids...))
	}
	all := proctest.Try(box.Notices(own(), noon)).OK(t)
	require.Len(t, all, 20)
	require.True(t, strings.HasPrefix(all[0].Text, "10ä"), "the last ones")
	require.LessOrEqual(t, len(all[0].Text), 2000)
	require.Empty(t, proctest.Try(box.Notices(own(), noon.Add(notify.MaxKeptAge+time.Second))).OK(t))
}

// TestWarningsThatAreOver: a warning says so once nothing is left of it. What a later notice says is not over.
func TestWarningsThatAreOver(t *testing.T) {
	box := newBox(t)
	require.NoError(t, box.End(own(), []string{"a"}, noon))
	require.NoFileExists(t, box.Path(own()))
	require.NoError(t, box.Keep(own(), "two", nil, noon, "a", "b"))
	require.NoError(t, box.Keep(own(), "one", nil, noon, "c"))
	require.NoError(t, box.Keep(own(), "one is ended", nil, noon, "c"))
	require.NoError(t, box.Keep(own(), "a test", nil, noon))
	for _, id := range []string{"b", "x", "a"} {
		list := proctest.Try(box.Notices(own(), noon)).OK(t)
		require.Equal(t, "two", list[0].Shown(), "before "+id)
		require.NoError(t, box.End(own(), []string{id}, noon.Add(time.Minute)))
	}
	list := proctest.Try(box.Notices(own(), noon)).OK(t)
	require.Equal(t, "two\nThat was over at "+notify.Clock(noon.Add(time.Minute))+", and nothing is done.", list[0].Shown())
	require.Equal(t, []string{"one", "one is ended", "a test"}, []string{list[1].Shown(), list[2].Shown(), list[3].Shown()})
}

func TestControllersThatKeepAtOnce(t *testing.T) {
	box := newBox(t)
	var controllers sync.WaitGroup
	for i := range 10 {
		controllers.Go(func() {
			if err := box.Keep(own(), fmt.Sprint(i), nil, noon); err != nil {
				t.Error(err)
			}
		})
	}
	controllers.Wait()
	all := proctest.Try(box.Notices(own(), noon)).OK(t)
	require.Len(t, all, 10)
}

func TestDamagedAndStrangeFiles(t *testing.T) {
	box := newBox(t)
	require.NoError(t, box.Keep(own(), "x", nil, noon))
	file := filepath.Join(box.Root, "notices", fmt.Sprint(own(), ".json"))
	for _, content := range []string{"", "{", `{"schema":"genv.notices/9"}`, `[]`, strings.Repeat("[", 1<<20)} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		require.Error(t, proctest.Try(box.Notices(own(), noon)).Err, content[:min(len(content), 20)])
	}
	require.NoError(t, box.Keep(own(), "again", nil, noon), "it is replaced")
	require.NoError(t, os.Remove(file))
	require.NoError(t, syscall.Mkfifo(file, 0o600))
	_, err := box.Notices(own(), noon)
	require.Error(t, err, "and nothing hangs")
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Symlink("/etc/passwd", file))
	require.Error(t, proctest.Try(box.Notices(own(), noon)).Err)
}

// In a folder that others may write, what is made there could be replaced by a link before its mode is set.
func TestAFolderOfOthersIsNotUsed(t *testing.T) {
	box := newBox(t)
	require.NoError(t, os.Mkdir(box.Root, 0o755))
	require.NoError(t, os.Chmod(box.Root, 0o777))
	require.ErrorIs(t, box.Keep(own(), "x", nil, noon), folder.ErrUnsafe)
	require.NoDirExists(t, filepath.Join(box.Root, "notices"))
	require.NoError(t, os.Chmod(box.Root, 0o755))
	require.NoError(t, box.Keep(own(), "x", nil, noon))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(box.Root, 4000, 4000))
		require.ErrorIs(t, box.Keep(own(), "x", nil, noon), folder.ErrUnsafe)
	}
}

// Only the user and root can read what is kept, and only root can change it.
func TestNoticesArePrivate(t *testing.T) {
	proctest.NeedRoot(t)
	const alice, bob = 60901, 60902
	root := proctest.PublicDir(t, 0o755)
	box := notify.Box{Root: root}
	require.NoError(t, box.Keep(alice, "for alice", nil, noon))
	file := filepath.Join(root, "notices", fmt.Sprint(alice, ".json"))
	as := func(uid uint32, command ...string) error {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		return cmd.Run()
	}
	require.NoError(t, as(alice, "cat", file))
	require.Error(t, as(bob, "cat", file))
	require.Error(t, as(bob, "ls", filepath.Dir(file)))
	for _, change := range []string{"echo x >> " + file, "rm -f " + file, "chmod 0666 " + file, "echo x > " + filepath.Dir(file) + "/new", ": > " + filepath.Dir(file) + "/lock"} {
		require.Error(t, as(alice, "sh", "-c", change), change)
	}
	none := func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("no directory") }
	box.Accounts = nss.Passwd{File: filepath.Join(root, "passwd"), Getent: none}
	for _, name := range []string{"alice", "carol"} { // who is given the uid after her
		require.NoError(t, os.WriteFile(box.Accounts.File, []byte(name+":x:60901:1::/:/bin/sh\n"), 0o600))
		require.NoError(t, box.Keep(alice, "for "+name, nil, noon))
	}
	require.Equal(t, []string{"for carol"}, texts(proctest.Try(box.Notices(alice, noon)).OK(t)))
}
