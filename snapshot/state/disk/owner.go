package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Where root owns the state, the state files are in ownedName, in the folder of root's notes. ownerFile says of which
// state folder, from the takeover to the handover.
const (
	ownedName = "host"
	ownerFile = "owner.json"
)

// Modes in root's folder: every user may read the state, and root alone takes the lock.
const (
	ownedMode     = 0o644
	ownedLockMode = 0o600
)

// OwnerSchema is the version of the files in root's folder.
const OwnerSchema = "genv.owner/1"

// Owner says that root owns the state of a host: users ask its service, and the state folder is a copy for 1.4.3.
type Owner struct {
	Schema   string    `json:"schema"`
	StateDir string    `json:"state_dir"`
	Since    time.Time `json:"since"` // of the takeover
	// Reserves says that there were reservations, if only an empty list: if the file is missing now, it is lost.
	Reserves bool `json:"reserves,omitempty"`
}

// Owner is nil where every user writes the state files. With an error they are not to be read or written.
func (s *Store) Owner() (*Owner, error) {
	dir, owner, err := s.openOwned()
	dir.Close()
	return owner, err
}

// OwnedDir is the folder of the state files if they belong to root; else it is empty. The error is Owner's.
func (s *Store) OwnedDir() (string, error) {
	if owner, err := s.Owner(); owner == nil || err != nil {
		return "", err
	}
	return s.OwnedPath(), nil
}

// MayWrite says whether this process may change the state files: they don't belong to root, or it is root's.
func (s *Store) MayWrite() bool {
	dir, owner, err := s.openOwned()
	if err != nil || owner == nil {
		return err == nil
	}
	defer dir.Close()
	return dir.IsOurs()
}

// OwnedPath is where the state files are on a host where they belong to root.
func (s *Store) OwnedPath() string { return filepath.Join(s.RootDir, ownedName) }

// openOwned opens root's folder of the state files. All results are nil where there is none.
func (s *Store) openOwned() (*folder.Folder, *Owner, error) {
	if s.RootDir == "" {
		return nil, nil, nil
	}
	dir, err := folder.OpenExisting(s.OwnedPath())
	if folder.Ignore(err, fs.ErrNotExist, fs.ErrPermission, unix.ENOTDIR) == nil && err != nil {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	owner, err := s.readOwner(dir)
	if owner == nil || err != nil {
		dir.Close()
		return nil, nil, err
	}
	dir.Spare = true
	return dir, owner, nil
}

func (s *Store) readOwner(dir *folder.Folder) (*Owner, error) {
	data, _, err := dir.Read(ownerFile, maxNote)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, path := range []string{s.RootDir, s.OwnedPath()} {
		trusted, err := folder.OpenTrusted(path)
		if trusted.Close(); err != nil {
			return nil, err
		}
	}
	var owner Owner
	if err := json.Unmarshal(data, &owner); err != nil || owner.Schema != OwnerSchema {
		return nil, fmt.Errorf("%w: %s is not of this version of genv (%s): use the one that wrote it,"+
			" which gives the state back with `genv host handover`",
			folder.ErrUnsafe, dir.Join(ownerFile), OwnerSchema)
	}
	if owner.StateDir != s.path() {
		return nil, nil
	}
	return &owner, nil
}

type stateDir struct {
	*folder.Folder
	owned bool // by root
}

// mode is that of a file in it, where root's have another one than those that every user may write.
func (d stateDir) mode(owned uint32) uint32 {
	if d.owned {
		return owned
	}
	return folder.SharedMode
}

func (s *Store) open() (stateDir, error) {
	dir, owner, err := s.openOwned()
	if err != nil || owner != nil {
		return stateDir{dir, true}, err
	}
	dir, err = s.openShared()
	return stateDir{dir, false}, err
}

// Where is the folder of the state files, for looks without a lock, and whether it is root's. The error is Owner's, or
// ErrTampered.
func (s *Store) Where() (dir string, owned bool, err error) {
	if dir, err := s.OwnedDir(); dir != "" || err != nil {
		return dir, true, err
	}
	return s.dir, false, s.tampered()
}

func (s *Store) errOwned() error {
	return fmt.Errorf("%w: uid %d can't change %s", ErrOwned, os.Geteuid(), s.OwnedPath())
}
