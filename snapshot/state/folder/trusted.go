package folder

import (
	"encoding/binary"
	"encoding/json"
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
	if err == nil {
		err = d.CheckPrivate()
	}
	return d.OrClose(err)
}

// ReadTrusted reads a file in a trusted folder. The error wraps ErrUnsafe, or is fs.ErrNotExist.
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

func onlyOwnerWrites(st *unix.Stat_t) bool {
	return st.Mode&0o022 == 0 && (st.Uid == 0 || int(st.Uid) == os.Geteuid())
}

// An access control list: version and entries (include/uapi/linux/posix_acl_xattr.h).
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

const accountsAttribute = "trusted.genv.accounts" // names of the accounts that may read a file, one per line

// MoveFormer moves files with this prefix to a folder of root's if their reader had none of these accounts: the uid may
// have been reassigned.
func MoveFormer(path string, accounts []string) error {
	value := make([]byte, 4<<10)
	n, err := unix.Lgetxattr(path, accountsAttribute, value)
	former := strings.Split(string(value[:max(n, 0)]), "\n")
	same := slices.ContainsFunc(former, func(name string) bool { return slices.Contains(accounts, name) })
	if err != nil || len(accounts) == 0 || same {
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
			if !errors.Is(moved, fs.ErrNotExist) { // moved by another process
				err = errors.Join(err, moved)
			}
		}
	}
	_ = os.Remove(away) // if nothing was moved
	return err
}

// AllowToRead lets one user read a file of ours.
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
	if err == nil && len(accounts) > 0 { // on error, the file is like those of earlier versions
		_ = unix.Lsetxattr(path, accountsAttribute, []byte(strings.Join(accounts, "\n")), 0)
	}
	if err != nil {
		return fmt.Errorf("let the user read it: %w", err)
	}
	return nil
}

// Note is a JSON file in a trusted folder. It is replaced as a whole, so only changes need a lock.
type Note[T any] struct {
	Name    string
	Max     int64 // bytes
	Mode    uint32
	Durable bool           // on disk once written
	Invalid error          // wrapped if the content isn't a T or Check refuses it
	Check   func(*T) error // may be nil
}

// Read reads the note. The error is fs.ErrNotExist if missing, or wraps ErrUnsafe or Invalid.
func (n Note[T]) Read(dir string) (T, error) { return n.Decode(ReadTrusted(dir, n.Name, n.Max)) }

// ReadIn is Read in an open folder.
func (n Note[T]) ReadIn(d *Folder) (T, error) { return n.Decode(d.readTrusted(n.Name, n.Max)) }

// Decode decodes and checks a note, or passes err on. Its own error wraps Invalid.
func (n Note[T]) Decode(data []byte, err error) (T, error) {
	var v T
	if err != nil {
		return v, err
	}
	if err = json.Unmarshal(data, &v); err == nil && n.Check != nil {
		err = n.Check(&v)
	}
	switch {
	case err == nil:
		return v, nil
	case !errors.Is(err, n.Invalid):
		err = fmt.Errorf("%w: %w", n.Invalid, err)
	}
	return *new(T), fmt.Errorf("%s: %w", n.Name, err)
}

// Write replaces the note.
func (n Note[T]) Write(dir string, v T) error { return n.putIn(OpenTrusted, dir, v) }

// Publish is Write, with MakePublic.
func (n Note[T]) Publish(dir string, v T) error { return n.putIn(MakePublic, dir, v) }

func (n Note[T]) putIn(open func(string) (*Folder, error), dir string, v T) error {
	d, err := open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return n.Put(d, v)
}

// Put is Write in an open folder.
func (n Note[T]) Put(d *Folder, v T) error { return d.PutJSON(n.Name, v, n.Mode, n.Durable) }

// CheckSchema is for Note.Check.
func CheckSchema(got, want string) error {
	if got != want {
		return fmt.Errorf("its schema is %q, not %q", got, want)
	}
	return nil
}

// MakeTrusted is OpenTrusted, but creates a missing folder.
func MakeTrusted(path string) (*Folder, error) {
	d, err := OpenTrusted(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	return OpenTrusted(path)
}

// MakePublic is MakeTrusted, and lets all users enter and list the folder, whatever the umask.
func MakePublic(path string) (*Folder, error) {
	d, err := MakeTrusted(path)
	if err == nil {
		err = d.Chmod(0o755)
	}
	return d.OrClose(err)
}
