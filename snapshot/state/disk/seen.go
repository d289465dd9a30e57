package disk

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// seenFile is root's note about a state folder: which it is, its boot and namespaces, and what root saw there.
const seenFile = "seen.json"

// maxSeen bounds the note, in bytes.
const maxSeen = 2 * maxFileSize

// seenEvery is how old the time of the last look in the note may be, if nothing else changes.
const seenEvery = time.Minute

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

// ofSameBoot drops a note of another boot, which says nothing about this one.
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

// readSeen returns nil if there is no readable note.
func readSeen(root *folder.Folder) *seenNote {
	var n seenNote
	if root == nil || !root.ReadJSON(seenFile, maxSeen, &n) {
		return nil
	}
	return &n
}

// putSeen is not synced: nothing in it outlives a crash of the machine. If it fails, the next look tries again.
func putSeen(root *folder.Folder, n seenNote) { _ = root.PutJSON(seenFile, n, ownedMode, false) }

// applySeen adds to the files what root's note says about them. Without a note, nothing is known of ages.
func (t *transaction) applySeen() {
	t.files.KeepsNote = t.access.writable
	t.seen.Apply(&t.files)
	t.markFiles() // what is kept elsewhere may be about GPUs that have other indices now
}

// look is a look at the files as they are now.
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

// startOf is when a registered process started. With another start than noted, the PID was registered again.
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
	next := t.look(start)
	same := t.seen.At != 0 && next.Same(&t.seen) && start.Sub(t.seen.At) < seenEvery
	if t.files.KeepsNote && t.access.now.BootID != "" && !(same && t.access.noted == t.access.now) {
		putSeen(t.access.root, seenNote{t.access.now, next})
	}
	t.seen = next
}

// ended says whether a registered process has ended. A PID that isn't noted is the process that has it now.
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

// rebooted says whether root saw the environment before the machine was started again.
func (t *transaction) rebooted(env *snapshot.Environment) bool {
	return t.earlierBoot[state.KeyOf(env)] != nil
}

// answersFile has what looks and commands found out about processes: see state.Files.Answers. Users write it, too.
const answersFile = "genv.answers.json"

// maxAnswersFile is in bytes; a larger file is ignored.
const maxAnswersFile = 4 << 20

type answersNote struct {
	BootID  string            `json:"boot_id"`
	Answers []snapshot.Answer `json:"answers"`
}

// readAnswers reads the answers of this boot. If anything is wrong with the file there are none, which is harmless.
func (t *transaction) readAnswers() {
	var n answersNote
	if t.dir.ReadJSON(answersFile, maxAnswersFile, &n) && n.BootID == t.System.BootID() {
		t.answers, t.files.Answers = n.Answers, slices.Clone(n.Answers)
	}
}

// writeAnswers is not synced, and errors are ignored: the file is optional.
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

// rememberWithin bounds the wait for the lock: the next look remembers what this one couldn't.
const rememberWithin = 200 * time.Millisecond

// Remember keeps what a look of root found out about processes, so that it holds when they don't show it any more.
func (s *Store) Remember(ctx context.Context, answers []snapshot.Answer) error {
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
