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
	if root, err := lstat(m.RootDir); err == nil {
		s.Root = &root
	}
	here, err := statFolder(m.StateDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.Missing = true
		return s
	case err != nil:
		s.Err = err
		return s
	}
	s.Folder = &here
	if !here.Mode.IsDir() {
		return s
	}
	dir, err := folder.OpenExisting(m.StateDir)
	if err != nil {
		s.Err = err
		return s
	}
	defer dir.Close()
	for _, name := range StateNames() {
		if f, err := lstat(dir.Join(name)); err == nil {
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
	f, err := lstat(path)
	if err != nil || f.Mode&fs.ModeSymlink == 0 || f.UID != 0 && int(f.UID) != os.Geteuid() {
		return f, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return f, err
	}
	return fileOf(path, info), nil
}

func lstat(path string) (File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return File{}, err
	}
	return fileOf(path, info), nil
}

func fileOf(path string, info fs.FileInfo) File {
	f := File{Name: path, Mode: info.Mode(), Size: info.Size()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.UID = snapshot.UID(st.Uid)
		f.Links = uint64(st.Nlink) //nolint:unconvert // it is another type on arm64
	}
	return f
}

// read decodes a state file. genv 1.4.3 truncates a file before it writes it, so one that
// can't be decoded is read again.
func read(ctx context.Context, dir *folder.Folder, name string, f File) File {
	const attempts, pause = 5, 20 * time.Millisecond
	f.Name = name
	if !f.Mode.IsRegular() {
		return f
	}
	for attempt := 1; ; attempt++ {
		data, _, err := dir.Read(name, MaxStateFile)
		if err != nil {
			f.Unread = err.Error()
			return f
		}
		if f.Content = ContentError(name, data); f.Content == nil || attempt == attempts {
			return f
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return f
		}
	}
}

// holder names the process that holds the lock of the state files for more than a moment;
// empty if there is none. It asks for a shared lock, which no other reader waits for.
func (m *Machine) holder(ctx context.Context, dir *folder.Folder) string {
	const attempts, pause = 20, 100 * time.Millisecond
	file, st, err := dir.OpenFile("genv.lock", MaxStateFile)
	if err != nil {
		return ""
	}
	defer file.Close() // and with it the lock
	for attempt := 1; ; attempt++ {
		if err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			return ""
		}
		if attempt == attempts {
			return disk.HolderOf(m.Proc, &st).Describe()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ""
		}
	}
}

// spaces are the file systems on which genv writes.
func (m *Machine) spaces() []Space {
	root := func(st *unix.Statfs_t) uint64 { return st.Bfree }  // root may use what is reserved
	user := func(st *unix.Statfs_t) uint64 { return st.Bavail } // users write state files
	found := []Space{
		space("the state files", m.StateDir, user),
		space("root's notes", m.RootDir, root),
	}
	if m.Record != "" {
		record := space("the record", filepath.Dir(m.Record), root)
		if !record.Missing {
			if f, err := lstat(record.Path); err == nil {
				record.Folder, record.Owner = &f, m.Owner
			}
		}
		found = append([]Space{record}, found...)
	}
	return found
}

// space is the file system of a folder, or of the nearest one that exists.
func space(what, path string, free func(*unix.Statfs_t) uint64) Space {
	s := Space{For: what, Path: path}
	var st unix.Statfs_t
	for {
		err := unix.Statfs(s.Path, &st)
		if errors.Is(err, unix.ENOENT) && s.Path != "/" && s.Path != "." {
			s.Path, s.Missing = filepath.Dir(s.Path), true
			continue
		}
		if err != nil {
			s.Err = err
			return s
		}
		break
	}
	s.Free = free(&st) * uint64(st.Bsize)
	s.Inodes, s.NoInodes = st.Ffree, st.Files == 0
	s.ReadOnly = st.Flags&unix.ST_RDONLY != 0
	return s
}
