package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

var errSpent = errors.New("the limits of the search are used up")

const maxNodeMaps = 16 << 20 // bytes of /proc/PID/maps to read: a process may map any number of files

// HasNode says whether a process or a thread of it has a character device with a major number open or mapped. An error
// means unknown: it is unreadable, or the quota is used up.
func (q *Quota) HasNode(fs FS, pid snapshot.PID, major uint32) (bool, error) {
	return q.search(fs, pid, readRequest{Read: readNodes, Major: major})
}

// HasOpen is HasNode without the files of threads and without mappings.
func (q *Quota) HasOpen(fs FS, pid snapshot.PID, major uint32) (bool, error) {
	return q.search(fs, pid, readRequest{Read: readOpen, Major: major})
}

// OpenFiles is the number of open files; 0 if the kernel doesn't report it, as before Linux 6.2.
func (fs FS) OpenFiles(pid snapshot.PID) int64 {
	info, err := os.Stat(fs.path(pid) + "/fd")
	if err != nil {
		return 0
	}
	return info.Size()
}

func (q *Quota) search(fs FS, pid snapshot.PID, r readRequest) (has bool, err error) {
	r.Left, r.Files = q.left(maxNodeTime), q.files
	if r.Left == 0 || q.files > maxNodeFiles {
		return false, errSpent
	}
	h, err := fs.Open(pid)
	if err != nil {
		return false, err
	}
	defer h.Close()
	defer q.spend()()
	if h.isOther() {
		var a readAnswer
		a, err = h.ask(r, r.Left+readWithin)
		q.files = max(q.files, a.Files)
		return a.Found, err
	}
	search := nodeSearch{major: r.Major, files: r.Files, until: time.Now().Add(r.Left)}
	has, err = search.look(h.dir, r.Read)
	q.files = search.files
	return has, err
}

type nodeSearch struct {
	major uint32
	files int
	until time.Time
}

func (s *nodeSearch) look(dir int, what string) (bool, error) {
	has, err := s.folder(dir, "fd", nil)
	if has || err != nil || what == readOpen {
		return has, err
	}
	has, err = s.folder(dir, "task", func(tid string) (bool, error) { return s.folder(dir, "task/"+tid+"/fd", nil) })
	if has || err != nil {
		return has, err
	}
	return s.maps(dir)
}

// folder visits each entry of a folder: with look, or else whether it is a link to the node.
func (s *nodeSearch) folder(dir int, name string, look func(entry string) (bool, error)) (bool, error) {
	if err := s.spend(); err != nil {
		return false, err
	}
	fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false, err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	for {
		entries, err := file.Readdirnames(256)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for _, entry := range entries {
			var has bool
			if look != nil {
				has, err = look(entry)
			} else {
				has, err = s.isNode(dir, name+"/"+entry)
			}
			if has || err != nil && !errors.Is(err, unix.ENOENT) {
				return has, err
			}
		}
	}
}

func (s *nodeSearch) spend() error {
	if s.files++; s.files > maxNodeFiles || s.files%64 == 0 && time.Now().After(s.until) {
		return errSpent
	}
	return nil
}

// isNode never asks a file server or a user's file system.
func (s *nodeSearch) isNode(dir int, name string) (bool, error) {
	if err := s.spend(); err != nil {
		return false, err
	}
	var st unix.Statx_t
	err := unix.Statx(dir, name, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev_major == s.major, err
}

// maps checks mappings, also of closed files. If the first thread has ended, another one shows them.
func (s *nodeSearch) maps(dir int) (has bool, err error) {
	has, read, err := s.mapsOf(dir, "")
	if read || err != nil {
		return has, err
	}
	has, err = s.folder(dir, "task", func(tid string) (found bool, err error) {
		if !read {
			found, read, err = s.mapsOf(dir, "../"+tid+"/") // task/TID has no map_files
		}
		return found, err
	})
	if !read && err == nil {
		err = ErrUnreadable
	}
	return has, err
}

// mapsOf checks the maps in a folder; read is false if there are none. It checks the file, not its path.
func (s *nodeSearch) mapsOf(dir int, folder string) (has, read bool, err error) {
	data, err := readAt(dir, folder+"maps", maxNodeMaps+1)
	switch {
	case errors.Is(err, unix.ESRCH) || err == nil && len(data) == 0:
		return false, false, nil
	case err != nil:
		return false, false, err
	case len(data) > maxNodeMaps:
		return false, true, errSpent
	}
	for line := range bytes.Lines(data) {
		fields := bytes.Fields(line)
		if len(fields) < 6 || len(fields[4]) == 1 && fields[4][0] == '0' { // without a file
			continue
		}
		name, err := mapFile(string(fields[0]))
		if err != nil {
			return false, true, err
		}
		if has, err := s.isNode(dir, folder+name); has || err != nil && !errors.Is(err, unix.ENOENT) {
			return has, true, err
		}
	}
	return false, true, nil
}

// mapFile is the link to the file at a range of addresses: its name has no leading zeros.
func mapFile(addresses string) (string, error) {
	from, to, _ := strings.Cut(addresses, "-")
	begin, err := strconv.ParseUint(from, 16, 64)
	end, endErr := strconv.ParseUint(to, 16, 64)
	return fmt.Sprintf("map_files/%x-%x", begin, end), errors.Join(err, endErr)
}

// HasFile says whether a path is a user's regular file. A file system that doesn't answer the helper (FUSE, a broken
// NFS) is ErrUnreadable.
func (fs FS) HasFile(path string, uid snapshot.UID) (bool, error) {
	switch {
	case fs.Reader == nil:
		return hasFile(path, uid)
	case !utf8.ValidString(path): // JSON would change it
		return false, fmt.Errorf("%w: %q", ErrUnreadable, path)
	}
	a, err := fs.Reader.ask(readRequest{Read: readFile, Key: path, Start: snapshot.StartTime(uid)}, readWithin)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return a.Found, a.err()
}

func hasFile(path string, uid snapshot.UID) (bool, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && snapshot.UID(st.Uid) == uid, err
}
