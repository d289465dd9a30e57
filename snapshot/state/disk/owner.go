package disk

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

const (
	ownedName     = "host"       // root's folder for state files that root owns
	ownerFile     = "owner.json" // see Ownership
	ownedMode     = 0o644        // of the files in it
	ownedLockMode = 0o600        // only root takes it
)

const OwnerSchema = "genv.owner/1" // version of the files in root's folder

// Ownership says that root owns a host's state. Users ask its service, and the state folder is a copy for 1.4.3.
type Ownership struct {
	Schema   string    `json:"schema"`
	StateDir string    `json:"state_dir"`
	Since    time.Time `json:"since"`              // of the takeover
	Reserves bool      `json:"reserves,omitempty"` // a list of reservations was written: if missing, it is lost
}

// Owner is nil where all users write the state files. After an error, don't touch them.
func (s *Store) Owner() (*Ownership, error) {
	dir, owner, err := s.openOwned()
	dir.Close()
	return owner, err
}

// OwnedDir is the folder of root's state files, or "". The error is Owner's.
func (s *Store) OwnedDir() (string, error) {
	if owner, err := s.Owner(); owner == nil || err != nil {
		return "", err
	}
	return s.OwnedPath(), nil
}

// MayWrite says whether this process may change the state files.
func (s *Store) MayWrite() bool {
	dir, owner, err := s.openOwned()
	if err != nil || owner == nil {
		return err == nil
	}
	defer dir.Close()
	return dir.IsOurs()
}

// OwnedPath is where root keeps the state files if it owns them.
func (s *Store) OwnedPath() string { return filepath.Join(s.RootDir, ownedName) }

func (s *Store) openOwned() (*folder.Folder, *Ownership, error) {
	if s.RootDir == "" {
		return nil, nil, nil
	}
	dir, err := folder.OpenExisting(s.OwnedPath())
	if err != nil {
		return nil, nil, folder.Ignore(err, fs.ErrNotExist, fs.ErrPermission, unix.ENOTDIR)
	}
	owner, err := s.readOwner(dir)
	if owner == nil || err != nil {
		dir.Close()
		return nil, nil, err
	}
	dir.Spare = true
	return dir, owner, nil
}

func (s *Store) readOwner(dir *folder.Folder) (*Ownership, error) {
	data, _, err := dir.Read(ownerFile, maxNote)
	if err != nil {
		return nil, folder.Ignore(err, fs.ErrNotExist)
	}
	for _, path := range []string{s.RootDir, s.OwnedPath()} {
		trusted, err := folder.OpenTrusted(path)
		if trusted.Close(); err != nil {
			return nil, err
		}
	}
	var owner Ownership
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

// mode is owned in root's folder, else that of files for all users.
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

// Where is the folder of the state files. The error is Owner's, or wraps folder.ErrTampered.
func (s *Store) Where() (dir string, owned bool, err error) {
	if dir, err := s.OwnedDir(); dir != "" || err != nil {
		return dir, true, err
	}
	return s.dir, false, s.tampered()
}

// RootDir is the folder of root's notes, and of the state that root owns.
func RootDir(getenv func(string) string) string {
	return cmp.Or(getenv("GENV_ROOT_DIR"), "/var/lib/genv")
}

const maxNote = 16 << 10 // bytes of a small note

func (s *Store) path() string {
	if abs, err := filepath.Abs(s.dir); err == nil {
		return abs
	}
	return s.dir
}

// rootName of a state folder is readable, and unique by a hash.
func rootName(path string) string {
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, path)
	sum := sha256.Sum256([]byte(path))
	return strings.Trim(readable[max(0, len(readable)-64):], "-") + "-" + hex.EncodeToString(sum[:12])
}

func (s *Store) openNotes(name string, create bool) (*folder.Folder, error) {
	if create && os.Geteuid() == 0 {
		makeRoot(s.RootDir)
	}
	all, err := folder.OpenTrusted(s.RootDir)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	sub, err := all.Sub(name)
	if errors.Is(err, fs.ErrNotExist) && create && all.IsOurs() {
		sub, err = all.PrivateSub(name, 0o755)
	}
	return sub, err
}

// makeRoot creates the folder of root's notes, or there are none, as on a read-only file system.
func makeRoot(path string) {
	if os.MkdirAll(filepath.Dir(path), 0o755) == nil && os.Mkdir(path, 0o755) == nil {
		_ = os.Chmod(path, 0o755) // despite the umask
	}
}

// keepsNotes: this process is root or, on a simulated host, owns root's notes.
func (s *Store) keepsNotes() bool {
	if s.RootDir == "" || !s.System.Namespaces().Known() {
		return false
	}
	var st unix.Stat_t
	if err := unix.Stat(s.RootDir, &st); err != nil {
		return errors.Is(err, unix.ENOENT) && os.Geteuid() == 0
	}
	return int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0
}

// openShared opens the state folder of all users. Root doesn't touch a user's mount there.
func (s *Store) openShared() (*folder.Folder, error) {
	if !s.keepsNotes() {
		return folder.Open(s.dir)
	}
	if err := s.tampered(); err != nil {
		return nil, err
	}
	dir, err := folder.Open(s.dir)
	if err == nil {
		dir.NoMounts = true // the mount may appear after the check
	}
	return dir, err
}

func (s *Store) tampered() error {
	if mount := system.UsersMount(system.Mountinfo(system.RealProc), s.path()); mount != "" {
		return fmt.Errorf("%w: %s; have root unmount it: umount --lazy %s", folder.ErrTampered, mount, s.path())
	}
	return nil
}

// RunDir holds what lasts until reboot: /run/genv, or in GENV_ROOT_DIR, which sudo doesn't pass on.
func RunDir(getenv func(string) string) string {
	if root := getenv("GENV_ROOT_DIR"); root != "" {
		return filepath.Join(root, "run")
	}
	return "/run/genv"
}

// RootFile names a JSON file about a state folder: simulated hosts each have their own.
func RootFile(getenv func(string) string, name string) string {
	if clean := filepath.Clean(Dir(getenv)); clean != DefaultDir {
		sum := sha256.Sum256([]byte(clean))
		name += "." + hex.EncodeToString(sum[:8])
	}
	return name + ".json"
}

const reservationsSchema = "genv.reservations/1"

type reservationNote struct {
	Schema       string                 `json:"schema"`
	Reservations []snapshot.Reservation `json:"reservations"`
}

// reservations are kept with root's state files. All users may read them.
var reservations = folder.Note[reservationNote]{
	Name: "reservations.json", Max: maxFileSize, Mode: ownedMode, Durable: true, Invalid: snapshot.ErrInvalid,
	Check: func(n *reservationNote) error {
		if n.Reservations == nil {
			return errors.New("it has no list")
		}
		return folder.CheckSchema(n.Schema, reservationsSchema)
	},
}

// Reservations of this host; fs.ErrNotExist unless root owns the state.
func (s *Store) Reservations() ([]snapshot.Reservation, error) {
	dir, owner, err := s.openOwned()
	if err != nil || owner == nil {
		return nil, errors.Join(err, fs.ErrNotExist)
	}
	defer dir.Close()
	note, err := reservations.ReadIn(dir)
	if owner.Reserves && errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %s is lost: put it back from a backup; or stop the service, run `genv host handover`, "+
			"and start it, to begin without reservations", snapshot.ErrInvalid, dir.Join(reservations.Name))
	}
	return note.Reservations, err
}

// SaveReservations is only for root's service.
func (s *Store) SaveReservations(list []snapshot.Reservation) error {
	if err := reservations.Write(s.OwnedPath(), reservationNote{reservationsSchema, list}); err != nil {
		return err
	}
	dir, owner, err := s.openOwned()
	if err != nil || owner == nil {
		return nil // they are saved anyway
	}
	defer dir.Close()
	if !owner.Reserves {
		owner.Reserves = true
		_ = dir.PutJSON(ownerFile, owner, ownedMode, true) // retried at the next save
	}
	return nil
}
