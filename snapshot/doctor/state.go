package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// StateFacts is what was found in the place of the state folder. Facts that are unknown are nil.
type StateFacts struct {
	Path     string
	Missing  bool   // there is no folder yet
	Owned    bool   // it is root's own
	Systemd  bool   // root's service could own it
	Err      error  // why it could not be looked at
	Tampered string // what a user did to the folder that all share; empty for nothing
	Folder   *FileFacts
	Files    []FileFacts // those that exist
	Lost     []string    // files that root saw in this boot, and which are missing
	Holder   string      // the process that has held the lock for about 2 s
	Root     *FileFacts  // the folder of root's notes, which Owner has to own; nil if there is none
	Owner    snapshot.UID
}

// FileFacts is a file, or what is in its place.
type FileFacts struct {
	Name    string
	Mode    fs.FileMode // its type and permissions
	UID     snapshot.UID
	Size    int64
	Links   uint64   // how many names it has
	Content error    // what is wrong with its content; nil if nothing is, or if Unread
	Odd     []string // entries in it that are left out
	Unread  string   // why its content was not looked at; empty if it was
}

// CheckState judges the state folder.
func CheckState(s StateFacts) Check {
	r := cmp.Or(s.Root, &FileFacts{Mode: fs.ModeDir, UID: s.Owner})
	root := First(StateFolder, If(!r.Mode.IsDir() || !r.trusted(s.Owner), "root-folder-unsafe", "%s is %s", r.Name,
		r.describe()))
	if s.Tampered != "" {
		return Problem(StateFolder, "state-tampered", "%s", s.Tampered)
	}
	f := s.Folder
	if f == nil || s.Err != nil {
		return Worst(First(StateFolder,
			If(s.Missing, "", "%s is not there yet", s.Path),
			If(s.Err != nil, "state-unreadable", "%v", s.Err),
			If(true, Unsure, "%s could not be looked at", s.Path)), root)
	}
	found := []Check{s.inOrder(), First(StateFolder,
		If(!f.Mode.IsDir(), "state-unsafe", "%s of uid %d is %s, and not a folder", s.Path, f.UID, kindOf(f.Mode)),
		f.narrowed(s.Path, s.bits(0o777), true),
		If(f.Mode&fs.ModeSticky != 0, "state-sticky", "%s has mode %04o, with the sticky bit", s.Path,
			f.permissions()))}
	for _, f := range s.Files {
		found = append(found, f.check(s.Path+"/"+f.Name, s.bits(0o666)))
	}
	for _, name := range s.Lost {
		found = append(found, Problem(StateFolder, "state-lost", "%s/%s is missing, which root saw since the "+
			"machine was started", s.Path, name))
	}
	locked := First(StateFolder, If(s.Holder != "", "state-locked", "%s/genv.lock is locked by %s", s.Path, s.Holder))
	return Worst(append(found, locked, root)...)
}

func (s *StateFacts) bits(all uint32) uint32 {
	if s.Owned {
		return all &^ 0o022
	}
	return all
}

func (s *StateFacts) inOrder() Check {
	cause, unread := Cause(""), ""
	for _, f := range s.Files {
		if f.Unread != "" {
			cause, unread = Unsure, unread+"; "+f.Name+" was not read: "+f.Unread
		}
	}
	switch {
	case s.Owned:
		unread += "; it is root's"
	case s.Systemd && cause == "":
		cause, unread = "state-shared", "; every user can forge, remove or lock what others have there"
	}
	return Problem(StateFolder, cause, "%s, uid %d, mode %04o, %s%s", s.Path, s.Folder.UID, s.Folder.permissions(),
		text.Plural(len(s.Files), "file"), unread)
}

func (f *FileFacts) check(path string, bits uint32) Check {
	return First(StateFolder,
		If(!f.Mode.IsRegular(), "state-unsafe", "%s of uid %d is %s", path, f.UID, kindOf(f.Mode)),
		If(f.Links > 1, "state-unsafe", "%s of uid %d has %d hard links", path, f.UID, f.Links),
		If(f.Size > MaxStateFile && f.Name != lockName, "state-unsafe",
			"%s of uid %d has %d bytes, more than genv writes", path, f.UID, f.Size),
		If(f.Content != nil, "state-corrupt", "%s of uid %d: %v", path, f.UID, f.Content),
		f.narrowed(path, bits, f.Name != lockName),
		If(len(f.Odd) > 0, "state-odd", "%s of uid %d: %s", path, f.UID, strings.Join(f.Odd, "; ")))
}

// narrowed: a permission is missing. With mayBe, root may have made it readable only.
func (f *FileFacts) narrowed(path string, bits uint32, mayBe bool) Check {
	cause, readable := Cause("state-mode"), bits&0o555
	if mayBe && f.UID == 0 && f.permissions()&readable == readable {
		cause = "state-read-only"
	}
	return If(f.permissions()&bits != bits, cause, "%s of uid %d has mode %04o: not all users can write it", path,
		f.UID, f.permissions())
}

func (f *FileFacts) trusted(owner snapshot.UID) bool {
	return f.UID == owner && f.permissions()&0o022 == 0
}

func (f *FileFacts) describe() string {
	return fmt.Sprintf("%s of uid %d with mode %04o", kindOf(f.Mode), f.UID, f.permissions())
}

func (f *FileFacts) permissions() uint32 {
	bits := uint32(f.Mode.Perm())
	if f.Mode&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}

func kindOf(m fs.FileMode) string {
	kinds := map[fs.FileMode]string{
		0: "a file", fs.ModeDir: "a folder", fs.ModeSymlink: "a symbolic link", fs.ModeNamedPipe: "a FIFO",
		fs.ModeSocket: "a socket",
	}
	return cmp.Or(kinds[m.Type()], "a device")
}

// MaxStateFile bounds a state file, in bytes.
const MaxStateFile = 8 << 20

const lockName = "genv.lock"

// StateNames are the files that genv makes in the state folder.
func StateNames() []string {
	return []string{state.Envs.String(), state.Devices.String(), lockName}
}

// Decode looks at the content of a state file, if it is one that is decoded.
func (f *FileFacts) Decode(data []byte) {
	for _, file := range []state.File{state.Envs, state.Devices} {
		if file.String() == f.Name {
			var files state.Files
			f.Content = files.Decode(file, data)
			f.Odd = files.Warnings
			if file == state.Devices && len(f.Odd) > 0 { // an attachment that is left out would be none
				f.Content, f.Odd = errors.New(f.Odd[0]), nil
			}
		}
	}
}
