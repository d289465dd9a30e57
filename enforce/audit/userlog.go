package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// UserLogPath is where the records of one user are, next to the log of a host.
// The file belongs to root; an access control list (acl(5)) lets that user read it.
func UserLogPath(logPath string, uid snapshot.UID) string {
	return filepath.Join(filepath.Dir(logPath), "users", strconv.FormatUint(uint64(uid), 10)+".jsonl")
}

// The size of a user's log: a few thousand lines.
const (
	userMaxBytes = 1 << 20
	userKeep     = 2
)

// AppendHostLog writes records to the log of this host, and those with a UID to
// that user's log as well. It makes the folders where they are missing.
func AppendHostLog(path string, records ...Record) error {
	if err := os.MkdirAll(filepath.Dir(filepath.Dir(path)), 0o755); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(UserLogPath(path, 0))} {
		if err := makeReadable(dir); err != nil {
			return err
		}
	}
	if err := (&Log{Path: path}).Append(records...); err != nil {
		return err
	}
	byUser := make(map[snapshot.UID][]Record)
	for _, r := range records {
		if r.UID != nil {
			byUser[*r.UID] = append(byUser[*r.UID], r)
		}
	}
	var errs error
	for uid, own := range byUser {
		if err := appendUserLog(UserLogPath(path, uid), uid, own); err != nil {
			errs = errors.Join(errs, fmt.Errorf("the history of uid %d: %w", uid, err))
		}
	}
	return errs
}

// makeReadable makes a folder that users may enter, whatever the umask. One that
// exists already keeps the mode that the administrator gave it.
func makeReadable(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return errors.Join(err, os.Chmod(dir, 0o755))
}

func appendUserLog(path string, uid snapshot.UID, records []Record) error {
	log := Log{Path: path, MaxBytes: userMaxBytes, Keep: userKeep, unlocked: true}
	if err := log.Append(records...); err != nil {
		return err
	}
	return folder.AllowToRead(path, uint32(uid))
}
