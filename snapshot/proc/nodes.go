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
)

// errNodes says that what a process has open can't be found out within bounds.
var errNodes = errors.New("the open files of the process can't be read within bounds")

// Limits of the search for device nodes: a process may have any number of files.
const (
	maxNodeFiles = 1 << 17     // files
	maxNodeMaps  = 16 << 20    // bytes of /proc/PID/maps
	maxNodeTime  = time.Second // for all files: one may be on a file server
)

// HasNode says whether a process, or a thread of it, has a character device with a major number
// open or mapped. After an error that is unknown.
func (h *Handle) HasNode(major uint32) (bool, error) {
	dir, err := unix.FcntlInt(uintptr(h.dir), unix.F_DUPFD_CLOEXEC, 0) // it may outlive h
	if err != nil {
		return false, err
	}
	type answer struct {
		has bool
		err error
	}
	done := make(chan answer, 1)
	go func() {
		defer unix.Close(dir)
		search := nodeSearch{major: major, until: time.Now().Add(maxNodeTime)}
		has, err := search.process(dir)
		done <- answer{has, err}
	}()
	select {
	case a := <-done:
		return a.has, a.err
	case <-time.After(2 * maxNodeTime):
		return false, errNodes
	}
}

// nodeSearch looks for a node among the files of one process.
type nodeSearch struct {
	major uint32
	files int
	until time.Time
}

func (s *nodeSearch) process(dir int) (bool, error) {
	has, err := s.folder(dir, "fd", nil)
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

// isNode never asks a file server, nor a file system that belongs to a user.
func (s *nodeSearch) isNode(dir int, name string) (bool, error) {
	if s.files++; s.files > maxNodeFiles || s.files%64 == 0 && time.Now().After(s.until) {
		return false, errNodes
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
