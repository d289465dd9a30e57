package doctor

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// State is what was found in the place of the state folder. Facts that are unknown are nil.
type State struct {
	Path    string
	Missing bool  // there is no folder yet
	Err     error // why it could not be looked at
	Folder  *File
	Files   []File // those that exist
	// Lost are files of which root has a copy, and which are missing.
	Lost []string
	// Holder is the process that holds the lock, if it does so for longer than a moment.
	Holder string
	// Root is the folder of root's notes and copies, which Owner has to own; nil if there
	// is none.
	Root  *File
	Owner snapshot.UID
}

// File is a file, or what is in its place.
type File struct {
	Name string
	Mode fs.FileMode // its type and permissions
	UID  snapshot.UID
	Size int64
	// Links is how many names it has.
	Links uint64
	// Content says what is wrong with what is in it; nil if nothing is, or if Unread.
	Content error
	Unread  string // why its content was not looked at; empty if it was
}

// CheckState judges the state folder.
func CheckState(s State) Check {
	switch {
	case s.Missing:
		return worst(Good(StateFolder, "%s is not there yet: the first genv command makes it", s.Path), s.checkRoot())
	case s.Err != nil:
		return Problem(StateFolder, "state-unreadable", "%s", OneLine(s.Err.Error()))
	case s.Folder == nil:
		return Unknown(StateFolder, "%s could not be looked at", s.Path)
	}
	found := []Check{s.good(), s.checkFolder()}
	for _, f := range s.Files {
		found = append(found, s.checkFile(f))
	}
	for _, name := range s.Lost {
		found = append(found, Problem(StateFolder, "state-lost", "%s/%s is missing, although root has a copy of it", s.Path, name))
	}
	if s.Holder != "" {
		found = append(found, Problem(StateFolder, "state-locked", "%s/genv.lock is held by %s", s.Path, s.Holder))
	}
	return worst(append(found, s.checkRoot())...)
}

// good describes a folder in which all is in order.
func (s *State) good() Check {
	var unread []string
	for _, f := range s.Files {
		if f.Unread != "" {
			unread = append(unread, f.Name+" was not read: "+f.Unread)
		}
	}
	detail := fmt.Sprintf("%s, uid %d, mode %04o, %s", s.Path, s.Folder.UID, s.Folder.permissions(), plural(len(s.Files), "file"))
	if len(unread) > 0 {
		return Unknown(StateFolder, "%s; %s", detail, OneLine(strings.Join(unread, "; ")))
	}
	return Good(StateFolder, "%s", detail)
}

func (s *State) checkFolder() Check {
	f := s.Folder
	switch {
	case !f.Mode.IsDir():
		return Problem(StateFolder, "state-unsafe", "%s of uid %d is %s, and not a folder", s.Path, f.UID, kindOf(f.Mode))
	case f.permissions()&0o777 != 0o777:
		return narrowed(s.Path, f, f.UID == 0 && f.permissions()&0o555 == 0o555)
	case f.Mode&fs.ModeSticky != 0:
		return Problem(StateFolder, "state-sticky", "%s has mode %04o, with the sticky bit", s.Path, f.permissions())
	}
	return Check{}
}

func (s *State) checkFile(f File) Check {
	path := s.Path + "/" + f.Name
	switch {
	case !f.Mode.IsRegular():
		return Problem(StateFolder, "state-unsafe", "%s of uid %d is %s", path, f.UID, kindOf(f.Mode))
	case f.Links > 1:
		return Problem(StateFolder, "state-unsafe", "%s of uid %d has %d hard links", path, f.UID, f.Links)
	case f.Size > MaxStateFile && f.Name != lockName:
		return Problem(StateFolder, "state-unsafe", "%s of uid %d has %d bytes, more than genv ever writes", path, f.UID, f.Size)
	case f.Content != nil:
		return Problem(StateFolder, "state-corrupt", "%s of uid %d: %s", path, f.UID, OneLine(f.Content.Error()))
	case f.permissions()&0o666 != 0o666:
		return narrowed(path, &f, f.UID == 0 && f.permissions()&0o444 == 0o444 && f.Name != lockName)
	}
	return Check{}
}

// checkRoot judges the folder of root's notes.
func (s *State) checkRoot() Check {
	if r := s.Root; r != nil && (!r.Mode.IsDir() || r.UID != s.Owner || r.permissions()&0o022 != 0) {
		return Problem(StateFolder, "root-folder-unsafe", "%s is %s of uid %d with mode %04o", r.Name, kindOf(r.Mode), r.UID, r.permissions())
	}
	return Check{}
}

// narrowed is a folder or file that not all users can use. Root may have made it readable
// only on purpose.
func narrowed(path string, f *File, onPurpose bool) Check {
	cause := Cause("state-mode")
	if onPurpose {
		cause = "state-read-only"
	}
	return Problem(StateFolder, cause, "%s of uid %d has mode %04o: not all users can write it", path, f.UID, f.permissions())
}

// permissions are the bits of chmod(1).
func (f *File) permissions() uint32 {
	bits := uint32(f.Mode.Perm())
	if f.Mode&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}

// kindOf is what a file is.
func kindOf(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "a file"
	case m.IsDir():
		return "a folder"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// MaxStateFile bounds a state file, in bytes.
const MaxStateFile = 8 << 20

const lockName = "genv.lock"

// StateNames are the files that genv makes in the state folder.
func StateNames() []string {
	return []string{state.Envs.String(), state.Devices.String(), lockName}
}

// ContentError says what is wrong with the content of a state file; nil if nothing is, or
// if the file is not one that is decoded.
func ContentError(name string, data []byte) error {
	for _, file := range []state.File{state.Envs, state.Devices} {
		if file.String() == name {
			var files state.Files
			return files.Decode(file, data)
		}
	}
	return nil
}
