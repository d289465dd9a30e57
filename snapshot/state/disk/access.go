package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// bootNote says to which boot and namespaces the PIDs in a state folder belong.
type bootNote struct {
	Path   string `json:"path"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	BootID string `json:"boot_id"`
	system.Namespaces
}

// sameFolder says whether two notes are about the same folder.
func (n bootNote) sameFolder(o *bootNote) bool { return n.Device == o.Device && n.Inode == o.Inode }

// folderAccess is what this genv may do with a state folder.
type folderAccess struct {
	// mayClean says that the PIDs in the files belong to our own namespaces, so that
	// what has ended may be removed. If it is false, warning says why.
	mayClean bool
	warning  string
	// foreign says that root's note names another PID namespace.
	foreign bool
	// root is the folder of root's notes about this folder, or nil. writable says
	// that this genv keeps the notes up to date.
	root     *folder.Folder
	writable bool
	// private says that this is another folder than the one in root's note, below a mount of
	// this login's or service's own.
	private bool
}

// accessTo finds out what this genv may do with the open state folder, and updates
// root's notes about it. With force, root claims the folder for its own namespaces
// whatever the notes say.
func (s *Store) accessTo(dir place, force bool) folderAccess {
	if s.RootDir == "" {
		return folderAccess{mayClean: true}
	}
	if dir.owned {
		return s.accessToOwned(dir, force)
	}
	now, err := s.noteAbout(dir)
	if err != nil {
		return denied(dir, err.Error())
	}
	root, err := s.openRoot()
	if err != nil {
		return denied(dir, err.Error())
	}
	outside, inside := now.ofSameBoot(readNote(root, rootNote)), now.ofSameBoot(readNote(dir.Folder, folderNote))
	writable := root != nil && root.IsOurs()
	if outside != nil && !writable && !now.sameFolder(outside) && (now.Device != outside.Device || system.IsPrivate(system.RealProc, filepath.Dir(s.path()))) {
		a := denied(dir, "it is "+privateFolder)
		a.root, a.private = root, true
		return a
	}
	why := now.refusal(outside, inside, writable, rootDevice(s.RootDir))
	if why != "" && !(force && writable && now.Known()) {
		a := denied(dir, why)
		a.root, a.foreign = root, outside != nil && now.Known() && outside.PID != now.PID
		return a
	}
	if writable {
		writable = writeNote(root, rootNote, now, 0o644) == nil
		_ = writeNote(dir.Folder, folderNote, now, folder.SharedMode) // without it, a container only knows less
	}
	return folderAccess{mayClean: true, root: root, writable: writable}
}

// privateFolder says what such a folder is.
const privateFolder = "another folder than the one that root's genv knows: this login or service has a /var/tmp of its own (PrivateTmp= of a systemd unit, pam_namespace)"

// denied is the access to a folder in which it is not known which processes live.
func denied(dir place, why string) folderAccess {
	return folderAccess{warning: fmt.Sprintf("%s: nothing was cleaned up, since it is not known whether its processes live: %s", dir.Path, why)}
}

// ofSameBoot drops a note of another boot, which says nothing about this one.
func (n bootNote) ofSameBoot(o *bootNote) *bootNote {
	if o == nil || o.BootID != n.BootID {
		return nil
	}
	return o
}

// resetHint is the next step when the notes name another PID namespace.
const resetHint = "; where no other machine or container uses it, `sudo genv envs --reset` starts it over for this one"

// refusal says why the PIDs in the files may not belong to our namespaces, or "".
// Only root's note, which is outside the folder, can allow. The note inside, which
// any user may write, can only forbid; and it can't forbid root anything in the
// initial namespaces or in those of root's note. rootDevice is that of the file system
// of root's notes; 0 if unknown.
func (n bootNote) refusal(outside, inside *bootNote, isRoot bool, rootDevice uint64) string {
	ours := outside != nil && n.sameFolder(outside)
	switch {
	case !n.Known():
		return "/proc doesn't show the namespaces of this process"
	case ours && outside.Namespaces == n.Namespaces:
		return ""
	case ours, outside != nil && outside.Namespaces != n.Namespaces && !n.Initial():
		return fmt.Sprintf("they belong to PID namespace %d, and this is %d"+resetHint, outside.PID, n.PID)
	case isRoot && (n.Initial() || outside != nil):
		return "" // a user who replaces the folder may write any note into it
	case inside != nil && inside.Namespaces != n.Namespaces && n.sameFolder(inside):
		return fmt.Sprintf("they belong to PID namespace %d, as %s says, and this is %d"+resetHint, inside.PID, folderNote, n.PID)
	case n.Initial():
		return ""
	case !isRoot:
		return "this is not the initial PID namespace, and root's genv has not run here yet: have root run `genv envs` once"
	case rootDevice == 0 || rootDevice != n.Device:
		return "this is not the initial PID namespace, and the folder is not on this container's own file system" + resetHint
	}
	return ""
}

// Examination is what root's notes say about a state folder.
type Examination struct {
	Namespaces system.Namespaces // of this process
	// Refusal is why the PIDs in the state files may not belong to these namespaces; empty
	// if they do.
	Refusal string
	Lost    []state.File // missing, although root has a copy of this boot
}

// Examine reads what root's notes say about the state folder. It creates, repairs and
// writes nothing.
func (s *Store) Examine() (Examination, error) {
	found := Examination{Namespaces: s.System.Namespaces()}
	dir, owner, err := s.openOwned()
	if err == nil && owner == nil {
		dir, err = folder.OpenExisting(s.dir)
	}
	if err != nil {
		return found, err
	}
	defer dir.Close()
	now, err := s.noteAbout(place{dir, owner != nil})
	if err != nil {
		return found, err
	}
	if owner != nil {
		found.Refusal = now.refusal(now.ofSameBoot(readNote(dir, rootNote)), nil, os.Geteuid() == 0, now.Device)
		if _, err := dir.Stat(state.Envs.String()); errors.Is(err, fs.ErrNotExist) {
			found.Lost = []state.File{state.Envs}
		}
		return found, nil
	}
	root, err := s.existingRoot()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return found, fmt.Errorf("root's notes: %w", err)
	}
	defer root.Close()
	outside, inside := now.ofSameBoot(readNote(root, rootNote)), now.ofSameBoot(readNote(dir, folderNote))
	found.Refusal = now.refusal(outside, inside, os.Geteuid() == 0, rootDevice(s.RootDir))
	t := &transaction{Store: s, access: folderAccess{root: root}}
	if t.backup = t.readBackup(); t.backup == nil {
		return found, nil
	}
	for _, file := range stateFiles {
		if _, err := dir.Stat(file.String()); errors.Is(err, fs.ErrNotExist) && t.backup.contents[file] != nil {
			found.Lost = append(found.Lost, file)
		}
	}
	return found, nil
}

// existingRoot opens the folder of root's notes, which it does not create.
func (s *Store) existingRoot() (*folder.Folder, error) {
	all, err := folder.OpenTrusted(s.RootDir)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	return all.Sub(rootName(s.path()))
}

// readNote returns nil if there is no readable note.
func readNote(dir *folder.Folder, name string) *bootNote {
	if dir == nil {
		return nil
	}
	data, _, err := dir.Read(name, maxNote)
	if err != nil {
		return nil
	}
	return parseNote(data)
}

func parseNote(data []byte) *bootNote {
	var n bootNote
	if json.Unmarshal(data, &n) != nil || !n.Known() {
		return nil
	}
	return &n
}

// writeNote writes a note if it differs from the existing one.
func writeNote(dir *folder.Folder, name string, n bootNote, mode uint32) error {
	if old := readNote(dir, name); old != nil && *old == n {
		return nil
	}
	return dir.PutJSON(name, n, mode, true)
}
