package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

var (
	// errNodes says that what a process has open can't be found out within bounds.
	errNodes = errors.New("the open files of the process can't be read within bounds")
	// errSpent says that the limits of a search are used up.
	errSpent = errors.New("the limits of the search are used up")
)

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

// Finds says whether a process, or a thread of it, has such a device open or mapped. It is false, too, where
// the processes before it have left too little of the limits. An error says that the process can't be read.
func (s *NodeSearch) Finds(fs FS, pid snapshot.PID) (bool, error) { return s.run(fs, pid, readNodes) }

// FindsOpen is Finds without what threads or mappings alone have open.
func (s *NodeSearch) FindsOpen(fs FS, pid snapshot.PID) (bool, error) {
	return s.run(fs, pid, readOpen)
}

func (s *NodeSearch) run(fs FS, pid snapshot.PID, what string) (has bool, err error) {
	first, left := s.spent == 0, maxNodeTime-s.spent
	if left <= 0 || s.files > maxNodeFiles {
		return false, nil
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
	if errors.Is(err, errSpent) {
		err = nil
		if first {
			err = errNodes
		}
	}
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

// maps looks at what is mapped: a file can be closed then. The path in a line is what the process
// made of it, so the file itself is looked at.
func (s *nodeSearch) maps(dir int) (bool, error) {
	data, err := readAt(dir, "maps", maxNodeMaps+1)
	if err != nil {
		return false, err
	}
	if len(data) > maxNodeMaps {
		return false, errNodes
	}
	for line := range bytes.Lines(data) {
		fields := bytes.Fields(line)
		if len(fields) < 6 || len(fields[4]) == 1 && fields[4][0] == '0' { // without a file
			continue
		}
		name, err := mapFile(string(fields[0]))
		if err != nil {
			return false, err
		}
		has, err := s.isNode(dir, name)
		if has || err != nil && !errors.Is(err, unix.ENOENT) {
			return has, err
		}
	}
	return false, nil
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
