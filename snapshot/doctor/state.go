package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// StateFacts is what was found in the place of the state folder. Facts that are unknown are nil.
type StateFacts struct {
	Path     string
	Owned    bool   // it is root's own
	Systemd  bool   // root's service could own it
	Err      error  // why it can't be read; fs.ErrNotExist if there is no folder yet
	Tampered string // what a user did to the folder that all share; empty for nothing
	Folder   *FileFacts
	Files    []FileFacts  // those that exist
	Lost     []state.File // that root saw in this boot, and which are missing
	Holder   string       // the process that has held the lock for about 2 s
	Root     *FileFacts   // the folder of root's notes, which Owner has to own; nil if there is none
	Owner    snapshot.UID
}

// FileFacts is a file, or what is in its place.
type FileFacts struct {
	Name    string
	Mode    fs.FileMode // its type and permissions
	UID     snapshot.UID
	Size    int64
	Links   uint64   // how many names it has, if it is regular
	Content error    // what is wrong with its content; nil if nothing is, or if Unread
	Odd     []string // entries in it that are left out
	Unread  string   // why its content was not looked at; empty if it was
}

// CheckState judges the state folder.
func CheckState(s StateFacts) Check {
	if s.Tampered != "" {
		return Problem(StateFolder, "state-tampered", "%s", s.Tampered)
	}
	found, shared := []Check(nil), uint32(0o777) // who may read and write it
	if s.Owned {
		shared = 0o755
	}
	if s.Err != nil {
		found = append(found, First(StateFolder,
			If(errors.Is(s.Err, fs.ErrNotExist), "", "%s is not there yet", s.Path),
			If(true, "state-unreadable", "%v", s.Err)))
	} else {
		found = append(found, s.inOrder(), s.Folder.check(s.Path, fs.ModeDir, shared))
	}
	for _, f := range s.Files {
		found = append(found, f.check(s.Path+"/"+f.Name, 0, shared&0o666))
	}
	for _, file := range s.Lost {
		found = append(found, If(true, "state-lost", "%s/%s is missing: root saw it since the boot", s.Path, file))
	}
	r := cmp.Or(s.Root, &FileFacts{Mode: fs.ModeDir, UID: s.Owner})
	return First(StateFolder, Worst(append(found,
		If(s.Holder != "", "state-locked", "%s/genv.lock is locked by %s: nothing can be attached", s.Path, s.Holder),
		If(!r.Mode.IsDir() || !r.trusted(s.Owner), "root-folder-unsafe", "%s is %s", r.Name, r.describe()))...))
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
		cause, unread = "state-shared", "; every user can change what others have there"
	}
	return Problem(StateFolder, cause, "%s, uid %d, mode %04o, %s%s", s.Path, s.Folder.UID, s.Folder.permissions(),
		text.Plural(len(s.Files), "file"), unread)
}

// check judges a file or folder, which all who share it need permissions for. Root may have made it readable only.
func (f *FileFacts) check(path string, kind fs.FileMode, needed uint32) Check {
	seen, mode := fmt.Sprintf("%s of uid %d", path, f.UID), f.permissions()
	narrowed, readable := Cause("state-mode"), needed&0o555
	if f.UID == 0 && f.Name != lockName && mode&readable == readable {
		narrowed = "state-read-only"
	}
	return First(StateFolder,
		If(f.Mode.Type() != kind, "state-unsafe", "%s is %s", seen, kindOf(f.Mode)),
		If(f.Links > 1, "state-unsafe", "%s has %d hard links", seen, f.Links),
		If(f.Size > maxStateFile && f.Name != lockName, "state-unsafe", "%s has %d bytes, more than genv writes", seen,
			f.Size),
		If(f.Content != nil, "state-corrupt", "%s: %v", seen, f.Content),
		If(mode&needed != needed, narrowed, "%s has mode %04o: not all users can write it", seen, mode),
		If(kind == fs.ModeDir && mode&0o1000 != 0, "state-sticky", "%s has mode %04o, with the sticky bit", seen, mode),
		If(len(f.Odd) > 0, "state-odd", "%s: %s", seen, strings.Join(f.Odd, "; ")))
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

const (
	lockName     = "genv.lock"
	maxStateFile = 8 << 20 // bytes
)

func stateNames() []string { return []string{state.Envs.String(), state.Devices.String(), lockName} }

// decode looks at the content of a state file.
func (f *FileFacts) decode(data []byte) {
	file, files := state.File(slices.Index(stateNames(), f.Name)), state.Files{}
	if f.Name == lockName {
		return
	}
	f.Content = files.Decode(file, data)
	f.Odd = files.Warnings
	if file == state.Devices && len(f.Odd) > 0 { // an attachment that is left out would be none
		f.Content, f.Odd = errors.New(f.Odd[0]), nil
	}
}
