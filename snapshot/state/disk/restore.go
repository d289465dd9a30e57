package disk

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// restore replaces lost files by root's copy. Only root's genv restores, since only
// root sees what was created after the copy. For another genv, a file that is missing
// although there is a copy of this boot is ErrLost: missing is not empty.
//
// The contents are only loaded here, and saved later. What is written here is a note
// about the restoration.
func (t *transaction) restore() error {
	if t.backup == nil {
		return nil
	}
	if t.access.private { // what isn't in it is not lost
		return fmt.Errorf("%w: %s is %s; nothing is lost: run genv from a login that shares the folder with root, or turn that off for this one", ErrPrivate, t.dir.Path, privateFolder)
	}
	var lost []state.File
	for _, file := range stateFiles {
		if t.backup.contents[file] != nil && t.isLost(file) {
			lost = append(lost, file)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	if !t.access.writable {
		return fmt.Errorf("%w: %s is missing, although root has a copy of it: root's genv restores it on its next run; ask root to run `genv envs`",
			ErrLost, t.dir.Join(lost[0].String()))
	}
	t.noteRestoration() // first, so that processes are protected even if genv is killed before it has finished
	t.step("noted")
	t.lost = map[state.File]error{}
	for _, file := range lost {
		if err := t.files.Decode(file, t.backup.contents[file]); err != nil {
			return fmt.Errorf("root's copy of %s: %w", file, err)
		}
		t.onDisk[file], t.errs[file], t.lost[file] = nil, nil, t.errs[file]
		t.restored = t.restored || file == state.Envs
	}
	t.markFiles() // the notes were read without what is restored
	return nil
}

// readCopy reads root's copy while a user keeps root from the files, and writes nothing to them.
func (s *Store) readCopy(tampered error) (*transaction, error) {
	root, err := s.openRoot()
	if root == nil || err != nil {
		return &transaction{}, tampered
	}
	defer root.Close()
	inPlace := *root
	inPlace.Path = s.path() // for people
	now := bootNote{BootID: s.System.BootID(), Namespaces: s.System.Namespaces()}
	last := now.ofSameBoot(readNote(root, rootNote))
	ours := last != nil && last.Namespaces == now.Namespaces
	t := s.beginWith(place{&inPlace, false}, folderAccess{root: root, writable: ours, mayClean: ours}, newCensus(s.System))
	if !ours || t.backup == nil {
		return t, tampered
	}
	t.tampered = true
	t.files.Warn("%v", tampered)
	return t, t.restoreAndClean()
}

// isLost says whether a file is missing, or for root also whether it is bad.
func (t *transaction) isLost(file state.File) bool {
	err := t.errs[file]
	if err == nil {
		return t.onDisk[file] == nil
	}
	return t.access.writable && (errors.Is(err, ErrCorrupt) || errors.Is(err, folder.ErrUnsafe))
}

// clearWay moves unsafe files aside that root's copy replaces, and adds warnings about all that it replaces.
func (t *transaction) clearWay() error {
	for _, file := range stateFiles {
		why, lost := t.lost[file]
		if !lost {
			continue
		}
		name, what := file.String(), "missing"
		if st, err := t.dir.Stat(name); err == nil {
			what = fmt.Sprintf("bad (%v); it belongs to %s and was last changed at %s",
				reason(why), system.DescribeUser(st.Uid), t.local(st.Mtim).Format(time.DateTime))
		}
		if errors.Is(why, folder.ErrUnsafe) {
			if err := t.dir.MoveAside(name, t.Now()); err != nil {
				return err
			}
			t.step("aside " + name)
		}
		t.files.Warn("%s was %s: restored from root's copy of %s",
			t.dir.Join(name), what, t.backup.Taken.In(t.Now().Location()).Format(time.DateTime))
	}
	return nil
}

// reason is what is wrong with a file, without the advice in the error.
func reason(err error) error {
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		return fmt.Errorf("%w: %w", ErrCorrupt, corrupt.Cause)
	}
	return folder.ErrUnsafe
}

// restoredFile is root's note about recent restorations.
const restoredFile = "restored.json"

// maxRestorations bounds that note. When it is full, the last one counts for those
// that follow.
const maxRestorations = 60

type restorationsNote struct {
	BootID       string              `json:"boot_id"`
	Restorations []state.Restoration `json:"restorations"`
}

// restorations are the recent ones of this boot.
func (t *transaction) restorations() (list []state.Restoration) {
	var n restorationsNote
	if t.access.root == nil || !t.access.root.ReadJSON(restoredFile, maxNote, &n) || n.BootID != t.System.BootID() {
		return nil
	}
	for _, r := range n.Restorations {
		if r.Recent(t.Now()) {
			list = append(list, r)
		}
	}
	return list
}

// noteRestoration adds a restoration, unless the last one is of the same loss.
func (t *transaction) noteRestoration() {
	list, since := t.restorations(), t.lastComplete()
	if n := len(list); n == maxRestorations || n > 0 && list[n-1].Since == since {
		return
	}
	n := restorationsNote{t.backup.BootID, append(list, state.Restoration{At: t.Now().UTC(), Since: since})}
	_ = t.access.root.PutJSON(restoredFile, n, 0o644, true)
}

// completeFile is root's note about when it last saw the state files complete. That
// is later than when the copy was taken if nothing has changed since.
const completeFile = "whole.json"

type completeNote struct {
	BootID string             `json:"boot_id"`
	Start  snapshot.StartTime `json:"start_time"` // of processes that started then
}

// lastComplete is the start time of processes that started when root last saw the
// state files complete.
func (t *transaction) lastComplete() snapshot.StartTime {
	var n completeNote
	if !t.access.root.ReadJSON(completeFile, maxNote, &n) || n.BootID != t.backup.BootID {
		return t.backup.Uptime
	}
	return max(n.Start, t.backup.Uptime)
}

// noteComplete is not synced: without the note, the time of the copy counts.
func (t *transaction) noteComplete(uptime snapshot.StartTime) {
	_ = t.access.root.PutJSON(completeFile, completeNote{t.System.BootID(), uptime}, 0o644, false)
}
