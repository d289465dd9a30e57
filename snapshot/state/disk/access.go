package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

type folderAccess struct {
	// mayClean says that the PIDs are of our own namespaces, so that what ended may be removed; else see warning.
	mayClean bool
	warning  string
	// foreign says that root's note names another PID namespace.
	foreign bool
	// root is the folder of root's note, or nil. writable says that this genv keeps the note up to date.
	root     *folder.Folder
	writable bool
	// private says that it isn't the folder of root's note, but one of this login's or service's own mount.
	private bool

	seen       *seenNote // root's note; nil for none
	now, noted folderNote
}

// accessTo is what this genv may do with the state folder. With force, root claims it. The caller closes root.
func (s *Store) accessTo(dir stateDir, force bool) folderAccess {
	if s.RootDir == "" {
		return folderAccess{mayClean: true}
	}
	now, err := s.noteAbout(dir)
	var root *folder.Folder
	if err == nil {
		root, err = s.notesOf(dir, true)
	}
	if err != nil {
		return folderAccess{}.deny(dir, err.Error())
	}
	ours := root != nil && root.IsOurs()
	a := folderAccess{mayClean: true, root: root, writable: ours, seen: readSeen(root), now: now}
	outside := now.ofSameBoot(a.seen)
	if outside != nil {
		a.noted = *outside
	}
	if !dir.owned && outside != nil && !a.writable && !now.sameFolder(outside) &&
		(now.Device != outside.Device || system.IsPrivate(system.Mountinfo(system.RealProc), filepath.Dir(s.path()))) {
		a.private = true
		return a.deny(dir, "it is "+privateFolder)
	}
	why := now.refusal(outside, a.writable, s.isOwn(dir))
	if why != "" && !(force && a.writable && now.Known()) {
		a.foreign = outside != nil && now.Known() && outside.PID != now.PID
		return a.deny(dir, why)
	}
	return a
}

// notesOf opens the folder of root's note, which is root's own folder if the files are there; none is nil without an
// error.
func (s *Store) notesOf(dir stateDir, create bool) (*folder.Folder, error) {
	if dir.owned {
		return folder.OpenExisting(dir.Path)
	}
	root, err := s.openNotes(rootName(s.path()), create)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("root's notes: %w", err)
	}
	return root, nil
}

// isOwn says whether a state folder is on this container's own file system, or below the mount of root's notes.
func (s *Store) isOwn(dir stateDir) bool {
	if dir.owned || system.IsOwn(system.Mountinfo(system.RealProc), dir.Path) {
		return true
	}
	notes, err := folder.OpenExisting(s.RootDir)
	if err != nil {
		return false
	}
	defer notes.Close()
	here, known := dir.Mount()
	there, alsoKnown := notes.Mount()
	return known && alsoKnown && here == there
}

const privateFolder = "another folder than the one that root's genv knows:" +
	" this login or service has a /var/tmp of its own (PrivateTmp= of a systemd unit, pam_namespace)"

func (a folderAccess) deny(dir stateDir, why string) folderAccess {
	a.mayClean, a.writable = false, false
	a.warning = fmt.Sprintf("%s: nothing was cleaned up, since it is not known whether its processes live: %s",
		dir.Path, why)
	return a
}

// resetHint is the next step when the note names another PID namespace.
const resetHint = "; where no other machine or container uses it, `sudo genv envs --reset` starts it over for this one"

// refusal says why the PIDs may not belong to our namespaces, or "". Only root's note can allow it.
func (n folderNote) refusal(outside *folderNote, isRoot, isOwn bool) string {
	ours := outside != nil && n.sameFolder(outside)
	switch {
	case !n.Known():
		return "/proc doesn't show the namespaces of this process"
	case ours && outside.Namespaces == n.Namespaces:
		return ""
	case ours, outside != nil && outside.Namespaces != n.Namespaces && !n.Initial():
		return fmt.Sprintf("they belong to PID namespace %d, and this is %d"+resetHint, outside.PID, n.PID)
	case n.Initial(), isRoot && outside != nil:
		return ""
	case !isRoot:
		return "this is not the initial PID namespace, and root's genv has not run here yet:" +
			" have root run `genv envs` once"
	case !isOwn:
		return "this is not the initial PID namespace, and the folder is not on this container's own file system" +
			resetHint
	}
	return ""
}

// Examination is what root's note says about a state folder.
type Examination struct {
	Namespaces system.Namespaces // of this process
	// Refusal is why the PIDs in the state files may not belong to these namespaces; empty if they do.
	Refusal string
	Lost    []state.File // missing, although root saw them in this boot
}

// Examine reads what root's note says about the state folder. It creates and writes nothing.
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
	here := stateDir{dir, owner != nil}
	now, err := s.noteAbout(here)
	if err != nil {
		return found, err
	}
	root, err := s.notesOf(here, false)
	if err != nil {
		return found, err
	}
	defer root.Close()
	t := &transaction{Store: s, dir: here, access: folderAccess{seen: readSeen(root), now: now}}
	t.useSeen()
	found.Refusal = now.refusal(now.ofSameBoot(t.access.seen), os.Geteuid() == 0, s.isOwn(here))
	for _, file := range stateFiles {
		if _, err := dir.Stat(file.String()); errors.Is(err, fs.ErrNotExist) && t.expects(file) {
			found.Lost = append(found.Lost, file)
		}
	}
	return found, nil
}
