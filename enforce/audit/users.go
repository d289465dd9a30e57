package audit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// Users is the folder beside a host's log in which each user has a file with
// what concerns that user alone. The files and the folder belong to root; an
// access control list (acl(5)) lets the one user read the one file.
func Users(logPath string) string { return filepath.Join(filepath.Dir(logPath), "users") }

// UserLogPath is the log of one user.
func UserLogPath(logPath string, uid snapshot.UID) string {
	return filepath.Join(Users(logPath), strconv.FormatUint(uint64(uid), 10)+".jsonl")
}

// What a user's file may grow to: a few thousand lines.
const (
	userMaxBytes = 1 << 20
	userKeep     = 2
)

// HostLog is a host's record of what was done on it: the whole for root, and a
// file for each user. Who may read a file may hold its lock, too, so only the
// whole is locked.
type HostLog struct{ Log Log }

// NewHostLog makes the folders for a host's log where they are missing.
func NewHostLog(path string) (*HostLog, error) {
	if err := os.MkdirAll(filepath.Dir(filepath.Dir(path)), 0o755); err != nil {
		return nil, err
	}
	for _, dir := range []string{filepath.Dir(path), Users(path)} {
		if err := makeReadable(dir); err != nil {
			return nil, err
		}
	}
	return &HostLog{Log: Log{Path: path}}, nil
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

// Append writes records into the whole, and those with a UID into that user's
// file as well. Only the whole decides on the error of ErrNotWritten; what is
// wrong with a user's file is the other one.
func (h *HostLog) Append(records ...Record) (users, err error) {
	if err := h.Log.Append(records...); err != nil {
		return nil, err
	}
	byUser := make(map[snapshot.UID][]Record)
	for _, r := range records {
		if r.UID != nil {
			byUser[*r.UID] = append(byUser[*r.UID], r)
		}
	}
	for uid, own := range byUser {
		if err := h.appendFor(uid, own); err != nil {
			users = errors.Join(users, fmt.Errorf("the history of uid %d: %w", uid, err))
		}
	}
	return users, nil
}

func (h *HostLog) appendFor(uid snapshot.UID, records []Record) error {
	log := Log{Path: UserLogPath(h.Log.Path, uid), MaxBytes: userMaxBytes, Keep: userKeep, unlocked: true}
	if err := log.Append(records...); err != nil {
		return err
	}
	return allowToRead(log.Path, uid)
}

// The tags of an access control list as the kernel takes it, see
// include/uapi/linux/posix_acl.h and posix_acl_xattr.h: version 2, then for
// each entry two bytes of tag, two of permissions, four of id.
const (
	aclVersion  = 2
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclMask     = 0x10
	aclOther    = 0x20
	aclRead     = 4
	aclWrite    = 2
	aclNobody   = 0xffffffff
)

// allowToRead lets one user read a file of ours, and nobody else.
func allowToRead(path string, uid snapshot.UID) error {
	acl := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{
		{aclUserObj, aclRead | aclWrite, aclNobody},
		{aclUser, aclRead, uint32(uid)},
		{aclGroupObj, 0, aclNobody},
		{aclMask, aclRead, aclNobody},
		{aclOther, 0, aclNobody},
	} {
		acl = binary.LittleEndian.AppendUint16(acl, e.tag)
		acl = binary.LittleEndian.AppendUint16(acl, e.perm)
		acl = binary.LittleEndian.AppendUint32(acl, e.id)
	}
	if err := unix.Lsetxattr(path, "system.posix_acl_access", acl, 0); err != nil {
		return fmt.Errorf("let the user read it: %w", err)
	}
	return nil
}
