package folder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenTrusted opens a folder that only root, or the caller on a simulated host, may write; else it is ErrUnsafe.
func OpenTrusted(path string) (*Folder, error) {
	d, err := OpenExisting(path)
	if err != nil {
		return nil, err
	}
	if err := d.CheckPrivate(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// ReadTrusted returns a file in such a folder. The error wraps ErrUnsafe, or is fs.ErrNotExist for no folder or file.
func ReadTrusted(path, name string, limit int64) ([]byte, error) {
	d, err := OpenTrusted(path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.readTrusted(name, limit)
}

func (d *Folder) readTrusted(name string, limit int64) ([]byte, error) {
	data, st, err := d.Read(name, limit)
	if err != nil {
		return nil, err
	}
	if !onlyOwnerWrites(&st) {
		return nil, notTrusted(d.Join(name), &st)
	}
	return data, nil
}

func notTrusted(path string, st *unix.Stat_t) error {
	return fmt.Errorf("%w: %s belongs to uid %d with mode %04o: only root may be able to write it",
		ErrUnsafe, path, st.Uid, st.Mode&0o7777)
}

// onlyOwnerWrites says whether root or the caller owns a file or folder, and no other user may write it.
func onlyOwnerWrites(st *unix.Stat_t) bool {
	return st.Mode&0o022 == 0 && (st.Uid == 0 || int(st.Uid) == os.Geteuid())
}

// An access control list as in include/uapi/linux/posix_acl_xattr.h: the version, then the entries.
const (
	aclVersion  = 2
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclMask     = 0x10
	aclOther    = 0x20
	aclRead     = 4
	aclWrite    = 2
	aclNoID     = 0xffffffff
)

// accountsAttribute has the names of the accounts that may read a file, a line each.
const accountsAttribute = "trusted.genv.accounts"

// MoveFormer moves a file, and those with a longer name, into a folder of root's, if other accounts than these were
// allowed to read it: a uid may be given to somebody else. Without accounts nothing is moved.
func MoveFormer(path string, accounts []string) error {
	value := make([]byte, 4<<10)
	n, err := unix.Lgetxattr(path, accountsAttribute, value)
	former := strings.Split(string(value[:max(n, 0)]), "\n")
	if err != nil || len(accounts) == 0 || slices.ContainsFunc(former, func(name string) bool { return slices.Contains(accounts, name) }) {
		return nil //nolint:nilerr // it isn't there, or an earlier version wrote it
	}
	away, err := os.MkdirTemp(filepath.Dir(path), "former-*") // 0700
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(path)) {
			moved := os.Rename(filepath.Join(filepath.Dir(path), e.Name()), filepath.Join(away, e.Name()))
			if !errors.Is(moved, fs.ErrNotExist) { // by another process
				err = errors.Join(err, moved)
			}
		}
	}
	_ = os.Remove(away) // if nothing was moved
	return err
}

// AllowToRead lets one user, with the names of its accounts, read a file of ours, besides its owner.
func AllowToRead(path string, uid uint32, accounts []string) error {
	type aclEntry struct {
		tag, permissions uint16
		id               uint32
	}
	acl, err := binary.Append(binary.LittleEndian.AppendUint32(nil, aclVersion), binary.LittleEndian, []aclEntry{
		{aclUserObj, aclRead | aclWrite, aclNoID},
		{aclUser, aclRead, uid},
		{aclGroupObj, 0, aclNoID},
		{aclMask, aclRead, aclNoID},
		{aclOther, 0, aclNoID},
	})
	if err == nil {
		err = unix.Lsetxattr(path, "system.posix_acl_access", acl, 0)
	}
	if err == nil && len(accounts) > 0 { // where it can't be kept, the file is as those of earlier versions
		_ = unix.Lsetxattr(path, accountsAttribute, []byte(strings.Join(accounts, "\n")), 0)
	}
	if err != nil {
		return fmt.Errorf("let the user read it: %w", err)
	}
	return nil
}
