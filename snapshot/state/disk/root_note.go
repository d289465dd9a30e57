package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

type folderAccess struct {
	mayClean bool // the PIDs are of our namespaces, so ended ones may be removed; else see warning
	warning  string
	foreign  bool           // root's note names another PID namespace
	root     *folder.Folder // folder of root's note, or nil
	writable bool           // this process keeps the note up to date
	private  bool           // the folder is a mount of this login or service, not the one of root's note

	seen       *seenNote // nil for none
	now, noted folderNote
}

// accessTo says what this process may do. With force, root claims the folder. The caller closes root.
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
	if ours {
		root.Spare = true
	}
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
	why, step := now.refusal(outside, a.writable, s.isOwn(dir))
	if why != "" && !(force && a.writable && now.Known()) {
		a.foreign = outside != nil && now.Known() && outside.PID != now.PID
		return a.deny(dir, why+step)
	}
	return a
}

// notesOf opens the folder of root's note, or of root's state files; nil if there is none.
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

// isOwn: a state folder is on this container's own file system, or the mount of root's notes.
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

const resetHint = "; where no other machine or container uses it, `sudo genv envs --reset` starts it over for this one"

// refusal says why the PIDs may not be of our namespaces, and the next step. Only root's note allows them.
func (n folderNote) refusal(outside *folderNote, isRoot, isOwn bool) (why, step string) {
	ours := outside != nil && n.sameFolder(outside)
	switch {
	case !n.Known():
		return "/proc doesn't show the namespaces of this process", ""
	case ours && outside.Namespaces == n.Namespaces:
		return "", ""
	case ours, outside != nil && outside.Namespaces != n.Namespaces && !n.Initial():
		return fmt.Sprintf("they belong to PID namespace %d, and this is %d", outside.PID, n.PID), resetHint
	case n.Initial(), isRoot && outside != nil:
		return "", ""
	case !isRoot:
		return "this is not the initial PID namespace, and root's genv has not run here yet",
			": have root run `genv envs` once"
	case !isOwn:
		return "this is not the initial PID namespace, and the folder is not on this container's own file system",
			resetHint
	}
	return "", ""
}

// Examination is what root's note says about a state folder.
type Examination struct {
	Namespaces system.Namespaces // of this process
	Refusal    string            // why the PIDs in the state files may not be of these; empty if they are
	Lost       []state.File      // missing, but root saw them since boot
}

// Examine reads root's note about the state folder. It writes nothing.
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
	found.Refusal, _ = now.refusal(now.ofSameBoot(t.access.seen), os.Geteuid() == 0, s.isOwn(here))
	for _, file := range stateFiles {
		if _, err := dir.Stat(file.String()); errors.Is(err, fs.ErrNotExist) && t.isLost(file) {
			found.Lost = append(found.Lost, file)
		}
	}
	return found, nil
}

// seenFile is root's note about a state folder: which it is, and what root saw there.
const seenFile = "seen.json"

type folderNote struct {
	Path   string `json:"path"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	BootID string `json:"boot_id"`
	system.Namespaces
}

type seenNote struct {
	folderNote
	Seen state.RootNote `json:"seen"`
}

func (n folderNote) sameFolder(o *folderNote) bool { return n.Device == o.Device && n.Inode == o.Inode }

// ofSameBoot drops a note of another boot.
func (n folderNote) ofSameBoot(o *seenNote) *folderNote {
	if o == nil || o.BootID != n.BootID || !o.Known() {
		return nil
	}
	return &o.folderNote
}

func (s *Store) noteAbout(dir stateDir) (folderNote, error) {
	st, err := dir.Status()
	boot, namespaces := s.System.BootID(), s.System.Namespaces()
	return folderNote{Path: s.path(), Device: st.Dev, Inode: st.Ino, BootID: boot, Namespaces: namespaces}, err
}

func readSeen(root *folder.Folder) *seenNote {
	const maxSeen = 2 * maxFileSize // bytes
	var n seenNote
	if root == nil || !root.ReadJSON(seenFile, maxSeen, &n) {
		return nil
	}
	return &n
}

// putSeen doesn't sync, as the note is about one boot. After an error, the next look retries.
func putSeen(root *folder.Folder, n seenNote) { _ = root.PutJSON(seenFile, n, ownedMode, false) }

func (t *transaction) look(start snapshot.StartTime) state.RootNote {
	before := t.seen
	if t.access.root == nil || t.access.now.BootID == "" || before.At == 0 && !t.files.KeepsNote {
		return before
	}
	if before.At != 0 {
		before.At = min(max(before.At, snapshot.StartTime(t.looked.Load())), start)
	}
	next := before.Look(&t.files, t.Now(), start, t.startOf)
	if !t.dir.owned {
		next.KeepEarlier(&t.seen)
	}
	return next
}

// startOf is a registered process's start. If the note has another, the PID was registered again.
func (t *transaction) startOf(env *snapshot.Environment, pid snapshot.PID) snapshot.StartTime {
	if start := t.starts[pid]; start != 0 {
		return start
	}
	now := t.process(pid).Start
	if noted := t.noted[state.KeyOf(env)]; noted != nil && now == 0 {
		return noted.Starts[pid]
	}
	return now
}

func (t *transaction) noteLook(start snapshot.StartTime) {
	const seenEvery = time.Minute // minimum time between notes without news
	next := t.look(start)
	same := t.seen.At != 0 && next.Same(&t.seen) && start.Sub(t.seen.At) < seenEvery
	if t.files.KeepsNote && t.access.now.BootID != "" && !(same && t.access.noted == t.access.now) {
		putSeen(t.access.root, seenNote{t.access.now, next})
	}
	t.seen = next
}

// ended: a registered process has ended. A PID without a note is its present process.
func (t *transaction) ended(env *snapshot.Environment, pid snapshot.PID) bool {
	now := t.process(pid)
	if now.Liveness == system.Gone {
		return true
	}
	if earlier := t.earlierBoot[state.KeyOf(env)]; earlier != nil {
		_, noted := earlier.Starts[pid]
		return noted
	}
	noted := t.noted[state.KeyOf(env)]
	return noted != nil && noted.Starts[pid] != 0 && now.Start != 0 && noted.Starts[pid] != now.Start
}

// rebooted says whether root saw the environment before the last boot.
func (t *transaction) rebooted(env *snapshot.Environment) bool {
	return t.earlierBoot[state.KeyOf(env)] != nil
}

const answersFile = "genv.answers.json" // state.Files.Answers; users write it, too

type answersNote struct {
	BootID  string            `json:"boot_id"`
	Answers []snapshot.Answer `json:"answers"`
}

// readAnswers reads this boot's answers. A bad file is harmless.
func (t *transaction) readAnswers() {
	const maxAnswersFile = 4 << 20 // bytes
	var n answersNote
	if t.dir.ReadJSON(answersFile, maxAnswersFile, &n) && n.BootID == t.System.BootID() {
		t.answers, t.files.Answers = n.Answers, slices.Clone(n.Answers)
	}
}

// writeAnswers neither syncs nor fails: the file is optional.
func (t *transaction) writeAnswers() {
	n := answersNote{BootID: t.System.BootID()}
	for _, a := range t.files.Answers {
		a.Start = cmp.Or(a.Start, t.process(a.PID).Start)
		n.Answers = append(n.Answers, a)
	}
	if !slices.Equal(n.Answers, t.answers) {
		_ = t.dir.PutJSON(answersFile, n, t.dir.mode(ownedMode), false)
	}
}

func (t *transaction) forgetAnswers() {
	t.files.Answers = slices.DeleteFunc(t.files.Answers, func(a snapshot.Answer) bool {
		now := t.process(a.PID)
		ended := now.Liveness == system.Gone || now.Start != 0 && now.Start != a.Start
		return ended || snapshot.CheckName("eid", string(a.EID)) != nil
	})
}

// Remember keeps what root found out about processes, for when they no longer show it.
func (s *Store) Remember(ctx context.Context, answers []snapshot.Answer) error {
	const rememberWithin = 200 * time.Millisecond // for the lock; the next look retries
	if os.Geteuid() != 0 || !s.MayWrite() {
		return nil
	}
	_, err := s.update(ctx, rememberWithin, func(f *state.Files) error {
		f.Remember(answers)
		return nil
	})
	return err
}

func (t *transaction) startTimes() map[snapshot.PID]snapshot.StartTime {
	starts := make(map[snapshot.PID]snapshot.StartTime)
	for i := range t.files.Environments {
		if noted := t.noted[state.KeyOf(&t.files.Environments[i])]; noted != nil {
			maps.Copy(starts, noted.Starts)
		}
	}
	maps.Copy(starts, t.starts)
	return starts
}
