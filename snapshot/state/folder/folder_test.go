package folder_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

func open(t *testing.T, path string) *folder.Folder {
	t.Helper()
	d := proctest.Try(folder.Open(path)).OK(t)
	t.Cleanup(d.Close)
	return d
}

func TestAMissingFolderIsCreatedForAllUsers(t *testing.T) {
	for _, path := range []string{"genv", "genv/", "a/b", "a/b//"} {
		t.Run(path, func(t *testing.T) {
			top := t.TempDir()
			open(t, top+"/"+path)
			d := open(t, top+"/"+path)
			require.Equal(t, filepath.Join(top, path), d.Path)
			require.Equal(t, fs.ModeDir|0o777, proctest.Try(os.Stat(d.Path)).OK(t).Mode())
			require.Empty(t, proctest.Names(t, d.Path))
		})
	}
}

func TestALinkOfAnotherUserIsNotFollowed(t *testing.T) {
	if os.Geteuid() != 0 {
		require.NotEqual(t, "true", os.Getenv("CI"), "this test has to run as root")
		t.Skip("only root can give a link to another user: run it with sudo")
	}
	for _, slash := range []string{"", "/"} {
		link := filepath.Join(t.TempDir(), "link")
		require.NoError(t, os.Symlink(t.TempDir(), link))
		open(t, link+slash)
		require.NoError(t, os.Lchown(link, 4001, 4001))
		require.ErrorIs(t, proctest.Try(folder.Open(link+slash)).Err, folder.ErrUnsafe, "%q", slash)
	}
}

func TestSub(t *testing.T) {
	d, elsewhere := open(t, t.TempDir()), t.TempDir()
	require.NoError(t, os.WriteFile(d.Join("file"), nil, 0o600))
	require.NoError(t, os.Symlink(elsewhere, d.Join("link")))
	require.ErrorIs(t, proctest.Try(d.Sub("missing")).Err, fs.ErrNotExist)
	for _, name := range []string{"file", "link"} {
		require.ErrorIs(t, proctest.Try(d.Sub(name)).Err, folder.ErrUnsafe, name)
		require.ErrorIs(t, proctest.Try(d.SharedSub(name)).Err, folder.ErrUnsafe, name)
		require.ErrorIs(t, proctest.Try(d.PrivateSub(name, 0o755)).Err, folder.ErrUnsafe, name)
	}
	private := proctest.Try(d.PrivateSub("private", 0o755)).OK(t)
	defer private.Close()
	require.NoError(t, private.CheckPrivate())
	require.True(t, private.IsOurs())
	shared := proctest.Try(d.SharedSub("shared")).OK(t)
	defer shared.Close()
	require.ErrorIs(t, shared.CheckPrivate(), folder.ErrUnsafe)
	require.Equal(t, []string{"file", "link", "private", "shared"}, proctest.Names(t, d.Path), "nothing else is left")
}

func TestPutReplacesAFileAsAWhole(t *testing.T) {
	d, target := open(t, t.TempDir()), filepath.Join(t.TempDir(), "target")
	require.NoError(t, os.WriteFile(target, []byte("precious"), 0o600))
	require.NoError(t, os.Symlink(target, d.Join("file")))
	require.NoError(t, os.Symlink(target, d.Join("file.tmp")))
	for _, text := range []string{"one", "two"} {
		require.NoError(t, d.Put("file", []byte(text), folder.SharedMode, true))
		data, st, err := d.Read("file", 3)
		require.NoError(t, err)
		require.Equal(t, text, string(data))
		require.Equal(t, uint32(folder.SharedMode), st.Mode&0o777)
	}
	require.Equal(t, "precious", proctest.ReadText(t, target))

	require.NoError(t, os.Mkdir(d.Join("taken"), 0o700))
	require.Error(t, d.Put("taken", []byte("x"), folder.SharedMode, true))
	require.Equal(t, []string{"file", "taken"}, proctest.Names(t, d.Path), "nothing else is left")
}

func TestReadRefusesWhatGenvNeverMakes(t *testing.T) {
	d := open(t, t.TempDir())
	require.NoError(t, os.WriteFile(d.Join("large"), []byte("1234"), 0o600))
	require.NoError(t, os.WriteFile(d.Join("twice"), nil, 0o600))
	require.NoError(t, os.Link(d.Join("twice"), d.Join("again")))
	require.NoError(t, os.Symlink("twice", d.Join("link")))
	require.NoError(t, os.Mkdir(d.Join("folder"), 0o700))
	for _, name := range []string{"large", "twice", "again", "link", "folder"} {
		_, _, err := d.Read(name, 3)
		require.ErrorIs(t, err, folder.ErrUnsafe, name)
	}
	_, _, err := d.Read("missing", 3)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestEnsureCreatesAnEmptyFileForAllUsers(t *testing.T) {
	d := open(t, t.TempDir())
	for range 2 {
		require.NoError(t, d.Ensure("lock", folder.SharedMode))
		st := proctest.Try(d.Stat("lock")).OK(t)
		require.Equal(t, uint32(folder.SharedMode), st.Mode&0o777)
		require.True(t, d.StillNamed("lock", &st))
		require.False(t, d.StillNamed("other", &st))
	}
}

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, content := range []string{"a", "b"} {
		require.NoError(t, folder.WriteFile(path, []byte(content), 0o600))
		require.Equal(t, content, proctest.ReadText(t, path))
	}
	require.Len(t, proctest.Names(t, filepath.Dir(path)), 1)
	require.Error(t, folder.WriteFile(filepath.Join(path, "x"), nil, 0o600))
}

func TestLock(t *testing.T) {
	d := open(t, t.TempDir())
	held := proctest.Try(d.Lock("lock", 0)).OK(t)
	_, err := d.Lock("lock", 0)
	require.ErrorIs(t, err, folder.ErrLocked)
	require.ErrorContains(t, err, d.Join("lock"))

	begun := time.Now()
	require.ErrorIs(t, proctest.Try(d.Lock("lock", 50*time.Millisecond)).Err, folder.ErrLocked)
	require.GreaterOrEqual(t, time.Since(begun), 50*time.Millisecond)

	time.AfterFunc(30*time.Millisecond, func() { _ = held.Close() })
	require.NoError(t, proctest.Try(d.Lock("lock", time.Minute)).OK(t, "it waits until the lock is released").Close())
}

func TestLockFollowsNoLink(t *testing.T) {
	d := open(t, t.TempDir())
	victim := filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.Symlink(victim, d.Join("lock")))
	require.Error(t, proctest.Try(d.Lock("lock", 0)).Err)
	require.NoFileExists(t, victim)
}

func TestLockShared(t *testing.T) {
	d := open(t, t.TempDir())
	first := proctest.Try(d.LockShared("x.lock", 0)).OK(t)
	second := proctest.Try(d.LockShared("x.lock", 0)).OK(t)
	require.ErrorIs(t, proctest.Try(d.Lock("x.lock", 0)).Err, folder.ErrLocked)
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
	alone := proctest.Try(d.Lock("x.lock", 0)).OK(t)
	require.ErrorIs(t, proctest.Try(d.LockShared("x.lock", 0)).Err, folder.ErrLocked)
	require.NoError(t, alone.Close())
}

// On a disk that others fill, a file is replaced by what its spare has room for, again and again.
func TestASpareOnAFullDisk(t *testing.T) {
	proctest.NeedRoot(t)
	path := t.TempDir()
	require.NoError(t, unix.Mount("none", path, "tmpfs", 0, "size=256k,nr_inodes=8"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(path, 0)) })
	d := open(t, path)
	d.Spare = true
	require.NoError(t, d.Put("a", []byte("1"), 0o644, true))
	require.NoError(t, d.Put("other", []byte("1"), 0o644, false))
	for _, data := range [][]byte{make([]byte, 1<<20), nil} { // blocks, then inodes
		for i := range 8 {
			_ = os.WriteFile(filepath.Join(path, strconv.Itoa(i)), data, 0o600)
		}
		for _, content := range []string{"22", strings.Repeat("3", 9<<10), "4"} {
			require.NoError(t, d.Put("a", []byte(content), 0o644, true))
			got, st, err := d.Read("a", 1<<20)
			require.NoError(t, err)
			require.Equal(t, content, string(got))
			require.Equal(t, uint32(0o644), st.Mode&0o777)
		}
		err := d.Put("a", make([]byte, 300<<10), 0o644, true)
		require.True(t, folder.IsFull(err), "%v", err)
		require.ErrorContains(t, err, path)
		got, _, err := d.Read("a", 1<<20)
		require.NoError(t, err)
		require.Equal(t, "4", string(got))
		require.NoError(t, d.Put("a", []byte("4"), 0o644, true))
		require.NoError(t, os.Remove(filepath.Join(path, "0")))
	}
	require.NotContains(t, proctest.Names(t, path), "a.tmp")
}
