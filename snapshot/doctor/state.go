package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// StateFacts is what was found about the state folder; nil where unknown.
type StateFacts struct {
	Path     string // or its parent, if it must not be touched
	Owned    bool   // root owns it
	Systemd  bool   // root's service could own it
	Err      error  // why it can't be read; fs.ErrNotExist without a folder
	Tampered string // what a user did to the shared folder; empty for nothing
	Folder   *FileFacts
	Files    []FileFacts  // existing ones
	Lost     []state.File // missing, although root saw them in this boot
	Holder   string       // the process that has held the lock for about 2 s
	Root     *FileFacts   // the folder of root's notes, which Owner has to own; nil for none
	Owner    snapshot.UID
}

// FileFacts is a file, or what is in its place.
type FileFacts struct {
	Name string
	unix.Stat_t
	Content error    // what is wrong with its content; nil also if Unread
	Odd     []string // entries that are left out
	Unread  string   // why its content was not read
}

func ownFolder(owner snapshot.UID) *FileFacts {
	return &FileFacts{Stat_t: unix.Stat_t{Mode: unix.S_IFDIR, Uid: uint32(owner)}}
}

func (f *FileFacts) is(kind uint32) bool { return f.Mode&unix.S_IFMT == kind }

func (f *FileFacts) trusted(owner snapshot.UID) bool {
	return f.Uid == uint32(owner) && f.Mode&0o022 == 0
}

func (f *FileFacts) describe() string {
	return fmt.Sprintf("%s of uid %d with mode %04o", kindOf(f.Mode), f.Uid, f.Mode&0o7777)
}

func kindOf(mode uint32) string {
	kinds := map[uint32]string{
		unix.S_IFREG: "a file", unix.S_IFDIR: "a folder", unix.S_IFLNK: "a symbolic link", unix.S_IFIFO: "a FIFO",
		unix.S_IFSOCK: "a socket",
	}
	return cmp.Or(kinds[mode&unix.S_IFMT], "a device")
}

// CheckState judges the state folder.
func CheckState(s StateFacts) Check {
	if s.Tampered != "" {
		return Problem(StateFolder, "state-tampered", "%s", s.Tampered)
	}
	found, shared := []Check(nil), uint32(0o777) // permissions for users
	if s.Owned {
		shared = 0o755
	}
	if s.Err != nil {
		found = append(found, First(StateFolder,
			If(errors.Is(s.Err, fs.ErrNotExist), "", "%s is not there yet", s.Path),
			If(true, "state-unreadable", "%v", s.Err)))
	} else {
		found = append(found, s.inOrder(), s.Folder.check(s.Path, unix.S_IFDIR, shared))
	}
	for _, f := range s.Files {
		found = append(found, f.check(s.Path+"/"+f.Name, unix.S_IFREG, shared&0o666))
	}
	for _, file := range s.Lost {
		found = append(found, If(true, "state-lost", "%s/%s is missing, and root saw it after the boot", s.Path, file))
	}
	r := cmp.Or(s.Root, ownFolder(s.Owner))
	return First(StateFolder, Worst(append(found,
		If(s.Holder != "", "state-locked", "%s/genv.lock is locked by %s: nothing can be attached", s.Path, s.Holder),
		If(!r.is(unix.S_IFDIR) || !r.trusted(s.Owner), "root-folder-unsafe", "%s is %s", r.Name, r.describe()))...))
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
	return Problem(StateFolder, cause, "%s, uid %d, mode %04o, %s%s", s.Path, s.Folder.Uid, s.Folder.Mode&0o7777,
		text.Plural(len(s.Files), "file"), unread)
}

// check judges a file or folder for which all need permissions. Root may have made it read-only.
func (f *FileFacts) check(path string, kind, needed uint32) Check {
	seen, readable, narrowed := fmt.Sprintf("%s of uid %d", path, f.Uid), needed&0o555, Cause("state-mode")
	if f.Uid == 0 && f.Name != lockName && f.Mode&readable == readable {
		narrowed = "state-read-only"
	}
	return First(StateFolder,
		If(!f.is(kind), "state-unsafe", "%s is %s, not %s", seen, kindOf(f.Mode), kindOf(kind)),
		If(f.is(unix.S_IFREG) && f.Nlink > 1, "state-unsafe", "%s has %d hard links", seen, f.Nlink),
		If(f.is(unix.S_IFREG) && f.Size > maxStateFile && f.Name != lockName, "state-unsafe",
			"%s has %d bytes, more than genv writes", seen, f.Size),
		If(f.Content != nil, "state-corrupt", "%s: %v", seen, f.Content),
		If(f.Mode&needed != needed, narrowed, "%s has mode %04o: not all users can write it", seen, f.Mode&0o7777),
		If(f.is(unix.S_IFDIR) && f.Mode&unix.S_ISVTX != 0, "state-sticky", "%s has mode %04o, with the sticky bit",
			seen, f.Mode&0o7777),
		If(len(f.Odd) > 0, "state-odd", "%s: %s", seen, strings.Join(f.Odd, "; ")))
}

const (
	lockName     = "genv.lock"
	maxStateFile = 8 << 20 // bytes
)

func stateNames() []string { return []string{state.Envs.String(), state.Devices.String(), lockName} }

func (f *FileFacts) decode(data []byte) {
	file, files := state.File(slices.Index(stateNames(), f.Name)), state.Files{}
	if f.Name == lockName {
		return
	}
	f.Content = files.Decode(file, data)
	f.Odd = files.Warnings
	if file == state.Devices && len(f.Odd) > 0 { // otherwise an attachment would be missing
		f.Content, f.Odd = errors.New(f.Odd[0]), nil
	}
}
