package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// state looks at the state folder, and follows no link in it.
func (m *Machine) state(ctx context.Context) State {
	s := State{Path: m.StateDir, Owner: m.Owner}
	if root, err := stat(m.RootDir, os.Lstat); err == nil {
		s.Root = &root
	}
	here, err := statFolder(m.StateDir)
	if err != nil {
		if s.Missing = errors.Is(err, fs.ErrNotExist); !s.Missing {
			s.Err = err
		}
		return s
	}
	if s.Folder = &here; !here.Mode.IsDir() {
		return s
	}
	dir, err := folder.OpenExisting(m.StateDir)
	if err != nil {
		s.Err = err
		return s
	}
	defer dir.Close()
	for _, name := range StateNames() {
		if f, err := stat(dir.Join(name), os.Lstat); err == nil {
			s.Files = append(s.Files, read(ctx, dir, name, f))
		}
	}
	if found, err := m.Notes.Examine(); err == nil {
		for _, file := range found.Lost {
			s.Lost = append(s.Lost, file.String())
		}
	}
	s.Holder = m.holder(ctx, dir)
	return s
}

// statFolder is the folder itself. A link of root or of this user in its place is followed,
// as genv does; one of another user is not.
func statFolder(path string) (File, error) {
	f, err := stat(path, os.Lstat)
	if err == nil && f.Mode&fs.ModeSymlink != 0 && (f.UID == 0 || int(f.UID) == os.Geteuid()) {
		return stat(path, os.Stat)
	}
	return f, err
}

func stat(path string, how func(string) (fs.FileInfo, error)) (f File, err error) {
	info, err := how(path)
	if err != nil {
		return f, err
	}
	f = File{Name: path, Mode: info.Mode(), Size: info.Size()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.UID = snapshot.UID(st.Uid)
		f.Links = uint64(st.Nlink) //nolint:unconvert // it is another type on arm64
	}
	return f, nil
}

// retry calls a function until it says that it is done, attempts times at most. It returns whether it is.
func retry(ctx context.Context, attempts int, pause time.Duration, done func() bool) bool {
	for range attempts - 1 {
		if done() {
			return true
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
	return done()
}

// read decodes a state file. genv 1.4.3 truncates a file before it writes it, so one that
// can't be decoded is read again.
func read(ctx context.Context, dir *folder.Folder, name string, f File) File {
	if f.Name = name; !f.Mode.IsRegular() {
		return f
	}
	retry(ctx, 5, 20*time.Millisecond, func() bool {
		data, _, err := dir.Read(name, MaxStateFile)
		if err != nil {
			f.Unread = err.Error()
			return true
		}
		f.Content = ContentError(name, data)
		return f.Content == nil
	})
	return f
}

// holder names the process that holds the lock of the state files for more than a moment;
// empty if there is none. It asks for a shared lock, which no other reader waits for.
func (m *Machine) holder(ctx context.Context, dir *folder.Folder) string {
	file, st, err := dir.OpenFile(lockName, MaxStateFile)
	if err != nil {
		return ""
	}
	defer file.Close() // and with it the lock
	free := retry(ctx, 20, 100*time.Millisecond, func() bool {
		return !errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
	})
	if free || ctx.Err() != nil {
		return ""
	}
	return disk.HolderOf(m.Proc, &st).Describe()
}

// spaces are the file systems on which genv writes.
func (m *Machine) spaces() []Space {
	found := []Space{space("the state files", m.StateDir, false), space("root's notes", m.RootDir, true)}
	if m.Record == "" {
		return found
	}
	record := space("the record", filepath.Dir(m.Record), true)
	if f, err := stat(record.Path, os.Lstat); err == nil && record.Path == filepath.Dir(m.Record) {
		record.Folder, record.Owner = &f, m.Owner
	}
	return append([]Space{record}, found...)
}

// space is the file system of a folder, or of the nearest one that exists. Root, unlike the users who
// write state files, may use what is reserved.
func space(what, path string, root bool) Space {
	s := Space{For: what, Path: path}
	var st unix.Statfs_t
	for s.Err = unix.Statfs(s.Path, &st); errors.Is(s.Err, unix.ENOENT) && s.Path != "/" && s.Path != "."; s.Err = unix.Statfs(s.Path, &st) {
		s.Path = filepath.Dir(s.Path)
	}
	free := st.Bavail
	if root {
		free = st.Bfree
	}
	s.Free, s.Inodes, s.NoInodes = free*uint64(st.Bsize), st.Ffree, st.Files == 0
	s.ReadOnly = st.Flags&unix.ST_RDONLY != 0
	return s
}
