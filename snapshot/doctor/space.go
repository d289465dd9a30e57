package doctor

import (
	"fmt"
	"io/fs"

	"github.com/seed-3119e985/genv/snapshot"
)

// Space is a file system on which genv writes.
type Space struct {
	For      string // what is written there: the record, the state files, …
	Path     string // the folder, or the nearest one that exists
	Missing  bool   // the folder itself is not there yet
	Free     uint64 // bytes that the writer can use
	Inodes   uint64 // that are free
	NoInodes bool   // the file system doesn't count inodes
	ReadOnly bool
	Err      error
	// Folder is the folder of the record, which Owner has to own; nil if that doesn't
	// matter.
	Folder *File
	Owner  snapshot.UID
}

// What is too little. The record of a busy day is some megabytes.
const (
	fullBytes, fullInodes = 1 << 20, 1
	lowBytes, lowInodes   = 200 << 20, 1000
)

// CheckDisk judges the file systems on which genv writes.
func CheckDisk(spaces []Space) Check {
	var found []Check
	for _, s := range spaces {
		found = append(found, s.check())
	}
	if len(found) == 0 {
		return Unknown(Disk, "the file systems could not be looked at")
	}
	return together(found, "; ")
}

func (s *Space) check() Check {
	seen := fmt.Sprintf("%s (%s)", s.Path, s.For)
	switch f := s.Folder; {
	case s.Err != nil:
		return Unknown(Disk, "%s: %s", seen, OneLine(s.Err.Error()))
	case s.ReadOnly:
		return Problem(Disk, "disk-read-only", "%s is on a read-only file system", seen)
	case s.Free < fullBytes:
		return Problem(Disk, "disk-full", "%s has %d bytes free", seen, s.Free)
	case !s.NoInodes && s.Inodes < fullInodes:
		return Problem(Disk, "disk-full", "%s has no inode free", seen)
	case f != nil && (f.Mode&fs.ModeDir == 0 || f.UID != s.Owner || f.permissions()&0o022 != 0 && f.Mode&fs.ModeSticky == 0):
		return Problem(Disk, "record-unsafe", "%s is %s of uid %d with mode %04o", seen, kindOf(f.Mode), f.UID, f.permissions())
	case s.Free < lowBytes:
		return Problem(Disk, "disk-low", "%s has %s free", seen, size(s.Free))
	case !s.NoInodes && s.Inodes < lowInodes:
		return Problem(Disk, "disk-low", "%s has %d inodes free", seen, s.Inodes)
	}
	return Good(Disk, "%s has %s free", seen, size(s.Free))
}

// size is a number of bytes for people.
func size(bytes uint64) string {
	if bytes >= 10<<30 {
		return fmt.Sprintf("%d GiB", bytes>>30)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
