package notify

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// KeptMessage is a message in a Box.
type KeptMessage struct {
	ID        string    `json:"id"` // random, and never used again
	Time      time.Time `json:"time"`
	Text      string    `json:"text"`
	Terminals []string  `json:"terminals,omitempty"` // on which it appeared, such as pts/3
	Findings  []string  `json:"findings,omitempty"`  // that it warns of, less those that are over or in a later notice
	Over      time.Time `json:"over,omitzero"`       // when the last of them was over without anything being done
}

// Shown is the text with the end of what it warns of, if that is over.
func (n *KeptMessage) Shown() string {
	if n.Over.IsZero() {
		return n.Text
	}
	return strings.TrimRight(n.Text, "\n") + "\nThat was over at " + Clock(n.Over) + ", and nothing is done."
}

const (
	MaxKeptAge  = 14 * 24 * time.Hour // of a notice
	maxNotices  = 20                  // for a user: the last ones
	maxUsers    = 4096                // with files
	maxFindings = 64                  // of a notice
	maxKeptText = 2000                // bytes, as on a terminal
	maxFile     = 256 << 10
	lockWithin  = time.Second // that another genv of root's may hold the lock: it only writes a small file
)

// Box has the notices of all users of a host. Each user's are in a file of root's that an access control list lets only
// that user read. What was read is in the user's own file: see Inbox. Number, size and age are bounded. Callers have to
// escape the texts.
type Box struct {
	Root     string // root's folder; the notices are in a folder below it
	Accounts nss.Passwd
}

type keptMessages struct {
	Schema  string        `json:"schema"`
	Notices []KeptMessage `json:"notices"`
}

const schema = "genv.notices/1"

func (b Box) dir() string { return filepath.Join(b.Root, "notices") }

var errOther = errors.New("not a file with notices")

func noteOf(uid snapshot.UID) folder.Note[keptMessages] {
	return folder.Note[keptMessages]{
		Name: strconv.FormatUint(uint64(uid), 10) + ".json", Max: maxFile, Mode: 0o600, Durable: true,
		Invalid: errOther,
		Check:   func(f *keptMessages) error { return folder.CheckSchema(f.Schema, schema) },
	}
}

// ErrTooManyUsers means that there are notices for too many users.
var ErrTooManyUsers = errors.New("notices for too many users are kept already")

// Keep keeps a notice for its user, with its terminals and findings. Only root can. With more findings than fit, it
// doesn't learn when they are over.
func (b Box) Keep(uid snapshot.UID, message string, terminals []string, now time.Time, findings ...string) error {
	n := KeptMessage{rand.Text()[:12], now.UTC(), text.Cut(message, maxKeptText), terminals, findings, time.Time{}}
	return b.change(uid, n.Time, func(list []KeptMessage) []KeptMessage {
		if end(list, findings, time.Time{}); len(findings) > maxFindings {
			n.Findings = nil
		}
		if len(list) >= maxNotices { // what waits for a login stays longer than what was shown
			oldest := max(0, slices.IndexFunc(list, func(n KeptMessage) bool { return len(n.Terminals) > 0 }))
			list = slices.Delete(list, oldest, oldest+1)
		}
		return append(list, n)
	})
}

// End notes in a user's notices that these findings are over without an action. Only root can.
func (b Box) End(uid snapshot.UID, findings []string, now time.Time) error {
	if _, err := os.Lstat(b.Path(uid)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return b.change(uid, now, func(list []KeptMessage) []KeptMessage { return end(list, findings, now.UTC()) })
}

// A notice without any findings left is over then; zero if a later notice has them.
func end(list []KeptMessage, findings []string, over time.Time) []KeptMessage {
	for i := range list {
		n := &list[i]
		before := len(n.Findings)
		n.Findings = slices.DeleteFunc(n.Findings, func(id string) bool { return slices.Contains(findings, id) })
		if before > 0 && len(n.Findings) == 0 {
			n.Over = over
		}
	}
	return list
}

func (b Box) change(uid snapshot.UID, now time.Time, change func([]KeptMessage) []KeptMessage) error {
	dir, err := b.open()
	if err != nil {
		return err
	}
	defer dir.Close()
	note := noteOf(uid)
	ctx, cancel := context.WithTimeout(context.Background(), lockWithin/2)
	defer cancel()
	names := b.Accounts.Names(ctx, uid)
	if err := folder.MoveFormer(dir.Join(note.Name), names); err != nil {
		return err
	}
	kept, err := note.ReadIn(dir)
	if err != nil {
		kept = keptMessages{Schema: schema}
		if err := makeRoom(dir, now); err != nil {
			return err
		}
	}
	kept.Notices = change(recent(kept.Notices, now))
	if err := note.Put(dir, kept); err != nil {
		return err
	}
	return folder.AllowToRead(dir.Join(note.Name), uint32(uid), names)
}

// Users may enter the folder, but not list it.
func (b Box) open() (*folder.Folder, error) {
	root, err := folder.MakeTrusted(b.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	dir, err := root.PrivateSub(filepath.Base(b.dir()), 0o711) // it is only root's to lock
	if err == nil {
		err = dir.Hold("lock", lockWithin)
	}
	return dir.OrClose(err)
}

func makeRoom(dir *folder.Folder, now time.Time) error {
	entries, err := os.ReadDir(dir.Path)
	if err != nil || len(entries) < maxUsers {
		return err
	}
	left := len(entries)
	for _, e := range entries {
		status, err := dir.Stat(e.Name())
		if err == nil && now.Sub(time.Unix(status.Mtim.Unix())) > MaxKeptAge && filepath.Ext(e.Name()) == ".json" &&
			dir.Remove(e.Name()) == nil {
			left--
		}
	}
	if left >= maxUsers {
		return ErrTooManyUsers
	}
	return nil
}

func recent(list []KeptMessage, now time.Time) []KeptMessage {
	return slices.DeleteFunc(slices.Clone(list), func(n KeptMessage) bool { return now.Sub(n.Time) > MaxKeptAge })
}

// Path is the file with the notices of a user. Its time is that of the last one.
func (b Box) Path(uid snapshot.UID) string { return filepath.Join(b.dir(), noteOf(uid).Name) }

// Notices are those kept for a user, the oldest first.
func (b Box) Notices(uid snapshot.UID, now time.Time) ([]KeptMessage, error) {
	list, _, err := b.notices(uid, now)
	return list, err
}

func (b Box) notices(uid snapshot.UID, now time.Time) (_ []KeptMessage, written time.Time, _ error) {
	info, err := os.Lstat(b.Path(uid)) // before it is read: a later one is looked at again
	if errors.Is(err, fs.ErrNotExist) {
		return nil, time.Time{}, nil
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	kept, err := noteOf(uid).Decode(folder.ReadRegular(b.Path(uid), maxFile))
	list := recent(kept.Notices, now)
	return list[max(0, len(list)-maxNotices):], info.ModTime(), err
}
