package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// errSpent says that the limits of a search are used up: what it looks for is unknown.
var errSpent = errors.New("the limits of the search are used up")

// Limits of the search for device nodes: a process may have any number of files.
const (
	maxNodeFiles = 1 << 16                // files
	maxNodeMaps  = 16 << 20               // bytes of /proc/PID/maps
	maxNodeTime  = 250 * time.Millisecond // for all files: one may be on a file server
)

// NodeSearch looks for character devices with a major number among the files of processes. Its limits
// are those of one process, and of all of them together: whoever has many processes makes no look longer.
type NodeSearch struct {
	Major uint32
	files int
	spent time.Duration
}

// Finds says whether a process, or a thread of it, has such a device open or mapped. An error says that this is
// unknown: the process can't be read, or those before it have left too little of the limits.
func (s *NodeSearch) Finds(fs FS, pid snapshot.PID) (bool, error) { return s.run(fs, pid, readNodes) }

// FindsOpen is Finds without what threads or mappings alone have open.
func (s *NodeSearch) FindsOpen(fs FS, pid snapshot.PID) (bool, error) {
	return s.run(fs, pid, readOpen)
}

// OpenFiles is how many files a process has open; 0 if the kernel doesn't say it, as before Linux 6.2.
func (fs FS) OpenFiles(pid snapshot.PID) int64 {
	info, err := os.Stat(filepath.Join(fs.root(), strconv.Itoa(int(pid)), "fd"))
	if err != nil {
		return 0
	}
	return info.Size()
}

func (s *NodeSearch) run(fs FS, pid snapshot.PID, what string) (has bool, err error) {
	left := maxNodeTime - s.spent
	if left <= 0 || s.files > maxNodeFiles {
		return false, errSpent
	}
	h, err := fs.Open(pid)
	if err != nil {
		return false, err
	}
	defer func() { _ = h.Close() }() // it was only read
	began := time.Now()
	if h.isOther() {
		var a answer
		a, err = h.ask(request{Read: what, Major: s.Major, Files: s.files, Left: left}, left+readWithin)
		has, s.files = a.Found, max(s.files, a.Files)
	} else {
		search := nodeSearch{major: s.Major, files: s.files, until: began.Add(left)}
		has, err = search.look(h.dir, what)
		s.files = search.files
	}
	s.spent += max(1, time.Since(began))
	return has, err
}

// nodeSearch looks for a node among the files of one process.
type nodeSearch struct {
	major uint32
	files int
	until time.Time
}

// look looks at all of a process, or at what it has open.
func (s *nodeSearch) look(dir int, what string) (bool, error) {
	if what == readOpen {
		return s.open(dir)
	}
	return s.process(dir)
}

func (s *nodeSearch) open(dir int) (bool, error) { return s.folder(dir, "fd", nil) }

func (s *nodeSearch) process(dir int) (bool, error) {
	has, err := s.open(dir)
	if has || err != nil {
		return has, err
	}
	has, err = s.folder(dir, "task", func(tid string) (bool, error) { return s.folder(dir, "task/"+tid+"/fd", nil) })
	if has || err != nil {
		return has, err
	}
	return s.maps(dir)
}

// folder looks at each entry of a folder: with look, or else whether it is a link to the node.
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

// spend counts a file or a folder.
func (s *nodeSearch) spend() error {
	if s.files++; s.files > maxNodeFiles || s.files%64 == 0 && time.Now().After(s.until) {
		return errSpent
	}
	return nil
}

// isNode never asks a file server, nor a file system that belongs to a user.
func (s *nodeSearch) isNode(dir int, name string) (bool, error) {
	if err := s.spend(); err != nil {
		return false, err
	}
	var st unix.Statx_t
	err := unix.Statx(dir, name, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev_major == s.major, err
}

// maps looks at what is mapped: a file can be closed then. If the first thread has ended, another one shows that.
func (s *nodeSearch) maps(dir int) (has bool, err error) {
	has, read, err := s.mapsOf(dir, "")
	if read || err != nil {
		return has, err
	}
	has, err = s.folder(dir, "task", func(tid string) (found bool, err error) {
		if !read {
			found, read, err = s.mapsOf(dir, "../"+tid+"/") // only this folder of a thread has map_files
		}
		return found, err
	})
	if !read && err == nil {
		err = ErrUnreadable
	}
	return has, err
}

// mapsOf looks at the maps in a folder; read is false if there are none. The path in a line is what the process
// made of it, so the file itself is looked at.
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
		has, err := s.isNode(dir, folder+name)
		if has || err != nil && !errors.Is(err, unix.ENOENT) {
			return has, true, err
		}
	}
	return false, true, nil
}

// mapFile is the link to the file of a range of addresses: its name has no leading zeros.
func mapFile(addresses string) (string, error) {
	from, to, _ := bytes.Cut([]byte(addresses), []byte("-"))
	begin, err := strconv.ParseUint(string(from), 16, 64)
	if err != nil {
		return "", err
	}
	end, err := strconv.ParseUint(string(to), 16, 64)
	return fmt.Sprintf("map_files/%x-%x", begin, end), err
}
