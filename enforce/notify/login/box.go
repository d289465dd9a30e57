package login

import (
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
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Notice is a message that was kept.
type Notice struct {
	ID   string    `json:"id"` // random, and never used again
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

const (
	// MaxAge is how long a notice is kept.
	MaxAge = 14 * 24 * time.Hour
	// maxNotices is how many are kept for a user: the last ones. maxUsers is for how many
	// users there are files.
	maxNotices = 20
	maxUsers   = 4096
	maxText    = 2000 // bytes, as on a terminal
	maxFile    = 256 << 10
	// lockWithin is how long another genv of root's may hold the lock: it only writes a
	// small file.
	lockWithin = time.Second
)

// Box has the notices of all users of a host.
type Box struct {
	Root string // root's folder; the notices are in a folder below it
}

// file is what is kept for one user.
type file struct {
	Schema  string   `json:"schema"`
	Notices []Notice `json:"notices"`
}

const schema = "genv.notices/1"

func (b Box) dir() string { return filepath.Join(b.Root, "notices") }

func name(uid snapshot.UID) string { return strconv.FormatUint(uint64(uid), 10) + ".json" }

// ErrFull is wrapped when there are notices for too many users.
var ErrFull = errors.New("notices for too many users are kept already")

// Keep keeps a notice for a user. It is for root.
func (b Box) Keep(uid snapshot.UID, message string, now time.Time) error {
	dir, unlock, err := b.open()
	if err != nil {
		return fmt.Errorf("keep a notice: %w", err)
	}
	defer unlock()
	var kept file
	if !dir.ReadJSON(name(uid), maxFile, &kept) || kept.Schema != schema {
		kept = file{Schema: schema}
		if err := makeRoom(dir, now); err != nil {
			return fmt.Errorf("keep a notice: %w", err)
		}
	}
	kept.Notices = append(recent(kept.Notices, now), Notice{ID: rand.Text()[:12], Time: now.UTC(), Text: text.Cut(message, maxText)})
	kept.Notices = kept.Notices[max(0, len(kept.Notices)-maxNotices):]
	if err = dir.PutJSON(name(uid), kept, 0o600, true); err == nil {
		err = folder.AllowToRead(dir.Join(name(uid)), uint32(uid))
	}
	if err != nil {
		return fmt.Errorf("keep a notice: %w", err)
	}
	return nil
}

// open opens the folder and locks it. Users may enter it, and not list it.
func (b Box) open() (*folder.Folder, func(), error) {
	err := b.checkRoot()
	if err == nil {
		err = os.Mkdir(b.dir(), 0o711)
	}
	if err == nil {
		err = os.Chmod(b.dir(), 0o711) // whatever the umask
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil, err
	}
	dir, err := folder.OpenExisting(b.dir())
	if err != nil {
		return nil, nil, err
	}
	if err = dir.CheckPrivate(); err != nil { // it is only root's to lock
		dir.Close()
		return nil, nil, err
	}
	lock, err := dir.Lock("lock", lockWithin)
	if err != nil {
		dir.Close()
		return nil, nil, err
	}
	return dir, func() { _ = lock.Close(); dir.Close() }, nil
}

// checkRoot makes root's folder if it is missing, and refuses one that others may write.
func (b Box) checkRoot() error {
	if err := os.MkdirAll(b.Root, 0o755); err != nil {
		return err
	}
	root, err := folder.OpenExisting(b.Root)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.CheckPrivate()
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
		if err == nil && now.Sub(time.Unix(status.Mtim.Unix())) > MaxAge && filepath.Ext(e.Name()) == ".json" && dir.Remove(e.Name()) == nil {
			left--
		}
	}
	if left >= maxUsers {
		return ErrFull
	}
	return nil
}

// recent are the notices that are not too old. A clock that was set back makes none old.
func recent(list []Notice, now time.Time) []Notice {
	return slices.DeleteFunc(slices.Clone(list), func(n Notice) bool { return now.Sub(n.Time) > MaxAge })
}

// Notices are those that are kept for a user, the oldest first.
func (b Box) Notices(uid snapshot.UID, now time.Time) ([]Notice, error) {
	f, err := os.OpenFile(filepath.Join(b.dir(), name(uid)), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var kept file
	if err := json.NewDecoder(io.LimitReader(f, maxFile)).Decode(&kept); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	if kept.Schema != schema {
		return nil, fmt.Errorf("%s is of another version: %q", f.Name(), kept.Schema)
	}
	list := recent(kept.Notices, now)
	return list[max(0, len(list)-maxNotices):], nil
}
