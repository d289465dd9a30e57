package login

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// Seen remembers, in a file of the user's, which notices were shown.
type Seen struct{ Path string } // empty for none: then nothing was seen

const (
	maxSeen = 64 << 10 // bytes of that file that are read
	maxIDs  = 500      // that are kept in it
)

// Unseen are the notices that a user has not seen, the oldest first.
func (b Box) Unseen(uid snapshot.UID, seen Seen, now time.Time) ([]Notice, error) {
	list, err := b.Notices(uid, now)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	f, err := os.OpenFile(seen.Path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return list, nil //nolint:nilerr // without that file none was seen
	}
	defer f.Close()
	return without(list, readSeen(f)), nil
}

// ErrBusy says that another shell shows the notices at this moment.
var ErrBusy = errors.New("another shell shows the notices")

// ShowUnseen calls show with the notices that a user has not seen, and remembers that they
// were shown. Of several shells that start at once, one shows them; the others get ErrBusy
// or none. Where the file can't be written, they are shown all the same.
func (b Box) ShowUnseen(uid snapshot.UID, seen Seen, now time.Time, show func([]Notice) error) error {
	list, err := b.Notices(uid, now)
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
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) { //nolint:gosec // a descriptor fits
		return ErrBusy
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

func without(list []Notice, ids []string) []Notice {
	return slices.DeleteFunc(slices.Clone(list), func(n Notice) bool { return slices.Contains(ids, n.ID) })
}
