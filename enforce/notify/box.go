package notify

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// KeptNotice is a message that was kept.
type KeptNotice struct {
	ID   string    `json:"id"` // random, and never used again
	Time time.Time `json:"time"`
	Text string    `json:"text"`
	// Shown says that it appeared on a terminal: a login doesn't show it again.
	Shown bool `json:"shown,omitempty"`
}

const (
	// MaxKeptAge is how long a notice is kept.
	MaxKeptAge = 14 * 24 * time.Hour
	// maxNotices is how many are kept for a user: the last ones. maxUsers is for how many
	// users there are files.
	maxNotices  = 20
	maxUsers    = 4096
	maxKeptText = 2000 // bytes, as on a terminal
	maxFile     = 256 << 10
	// lockWithin is how long another genv of root's may hold the lock: it only writes a
	// small file.
	lockWithin = time.Second
)

// Box has the notices of all users of a host. A user's are in one file of root's, which only that
// user may read besides: an access control list says so, as with the user's history. Which of them
// the user has seen is in a file of the user's own. Their number, size and age are bounded. Texts
// are as they came: the caller escapes them.
type Box struct {
	Root     string // root's folder; the notices are in a folder below it
	Accounts nss.Passwd
}

// file is what is kept for one user.
type file struct {
	Schema  string       `json:"schema"`
	Notices []KeptNotice `json:"notices"`
}

const schema = "genv.notices/1"

func (b Box) dir() string { return filepath.Join(b.Root, "notices") }

// errOther means that a file is of another version, or damaged: see Keep.
var errOther = errors.New("not a file with notices")

func noteOf(uid snapshot.UID) folder.Note[file] {
	return folder.Note[file]{
		Name: strconv.FormatUint(uint64(uid), 10) + ".json", Max: maxFile, Mode: 0o600, Durable: true,
		Invalid: errOther,
		Check:   func(f *file) error { return folder.CheckSchema(f.Schema, schema) },
	}
}

// ErrTooManyUsers is wrapped when there are notices for too many users.
var ErrTooManyUsers = errors.New("notices for too many users are kept already")

// Keep keeps a notice for the next login of a user. It is for root.
func (b Box) Keep(uid snapshot.UID, message string, now time.Time) error {
	return b.keep(uid, KeptNotice{Time: now, Text: message})
}

// KeepShown keeps a notice that appeared on a terminal, so that its user can read it again. It is for root.
func (b Box) KeepShown(uid snapshot.UID, message string, now time.Time) error {
	return b.keep(uid, KeptNotice{Time: now, Text: message, Shown: true})
}

func (b Box) keep(uid snapshot.UID, n KeptNotice) error {
	dir, err := b.open()
	if err != nil {
		return fmt.Errorf("keep a notice: %w", err)
	}
	defer dir.Close()
	note := noteOf(uid)
	ctx, cancel := context.WithTimeout(context.Background(), lockWithin/2)
	defer cancel()
	names := b.Accounts.Names(ctx, uid)
	if err := folder.MoveFormer(dir.Join(note.Name), names); err != nil {
		return fmt.Errorf("keep a notice: %w", err)
	}
	kept, err := note.ReadIn(dir)
	if err != nil {
		kept = file{Schema: schema}
		if err := makeRoom(dir, n.Time); err != nil {
			return fmt.Errorf("keep a notice: %w", err)
		}
	}
	kept.Notices = recent(kept.Notices, n.Time)
	if list := kept.Notices; len(list) >= maxNotices { // what waits for a login stays longer than what was shown
		oldest := max(0, slices.IndexFunc(list, func(n KeptNotice) bool { return n.Shown }))
		kept.Notices = slices.Delete(list, oldest, oldest+1)
	}
	n.ID, n.Time, n.Text = rand.Text()[:12], n.Time.UTC(), text.Cut(n.Text, maxKeptText)
	kept.Notices = append(kept.Notices, n)
	if err = note.Put(dir, kept); err == nil {
		err = folder.AllowToRead(dir.Join(note.Name), uint32(uid), names)
	}
	if err != nil {
		return fmt.Errorf("keep a notice: %w", err)
	}
	return nil
}

// open opens the folder and locks it until it is closed. Users may enter it, and not list it.
func (b Box) open() (*folder.Folder, error) {
	root, err := folder.MakeTrusted(b.Root)
	if err != nil {
		return nil, err
	}
	root.Close()
	if err = os.Mkdir(b.dir(), 0o711); err == nil {
		err = os.Chmod(b.dir(), 0o711) // whatever the umask
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	dir, err := folder.OpenTrusted(b.dir()) // it is only root's to lock
	if err != nil {
		return nil, err
	}
	if err := dir.Hold("lock", lockWithin); err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// makeRoom removes files with nothing recent in them, when there are many.
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

// recent are the notices that are not too old. A clock that was set back makes none old.
func recent(list []KeptNotice, now time.Time) []KeptNotice {
	return slices.DeleteFunc(slices.Clone(list), func(n KeptNotice) bool { return now.Sub(n.Time) > MaxKeptAge })
}

// Notices are those that are kept for a user, the oldest first.
func (b Box) Notices(uid snapshot.UID, now time.Time) ([]KeptNotice, error) {
	f, err := os.OpenFile(filepath.Join(b.dir(), noteOf(uid).Name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, err
	}
	kept, err := noteOf(uid).Decode(data)
	if err != nil {
		return nil, err
	}
	list := recent(kept.Notices, now)
	return list[max(0, len(list)-maxNotices):], nil
}

// SeenNotices remembers, in a file of the user's, which notices were shown.
type SeenNotices struct{ Path string } // empty for none: then nothing was seen

const (
	maxSeen = 64 << 10 // bytes of that file that are read
	maxIDs  = 500      // that are kept in it
)

// Unseen are the notices that a user has not seen, the oldest first.
func (b Box) Unseen(uid snapshot.UID, seen SeenNotices, now time.Time) ([]KeptNotice, error) {
	list, err := b.Notices(uid, now)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	f, err := os.OpenFile(seen.Path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return without(list, nil), nil //nolint:nilerr // without that file none was seen
	}
	defer f.Close()
	return without(list, readSeen(f)), nil
}

// ErrShownElsewhere says that another shell shows the notices at this moment.
var ErrShownElsewhere = errors.New("another shell shows the notices")

// ShowUnseen calls show with the notices that a user has not seen, and remembers that they
// were shown. Of several shells that start at once, one shows them; the others get ErrShownElsewhere
// or none. Where the file can't be written, they are shown all the same.
func (b Box) ShowUnseen(uid snapshot.UID, seen SeenNotices, now time.Time, show func([]KeptNotice) error) error {
	list, err := b.Notices(uid, now)
	list = without(list, nil)
	if err != nil || len(list) == 0 {
		return err
	}
	if seen.Path == "" {
		return show(list)
	}
	_ = os.MkdirAll(filepath.Dir(seen.Path), 0o700) // opening the file says why it can't be written
	f, err := os.OpenFile(seen.Path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return show(list)
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a descriptor fits
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrShownElsewhere
	}
	before := readSeen(f)
	unseen := without(list, before)
	if len(unseen) == 0 {
		return nil
	}
	if err := show(unseen); err != nil {
		return err
	}
	ids := before // of other machines, too: a home may be shared by several of one name
	for _, n := range unseen {
		ids = append(ids, n.ID)
	}
	data, err := json.Marshal(ids[max(0, len(ids)-maxIDs):])
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(append(data, '\n'), 0); err == nil {
		err = f.Truncate(int64(len(data)) + 1)
	}
	return err
}

// readSeen are the ids in the file. One that was cut off, by a shell that was killed, has
// none.
func readSeen(f *os.File) []string {
	var ids []string
	if json.NewDecoder(io.LimitReader(f, maxSeen)).Decode(&ids) != nil {
		return nil
	}
	return ids
}

func without(list []KeptNotice, ids []string) []KeptNotice {
	return slices.DeleteFunc(slices.Clone(list),
		func(n KeptNotice) bool { return n.Shown || slices.Contains(ids, n.ID) })
}
