// Package statedir keeps the memory of a controller, and what operators asked for, in a folder
// (--state-dir), so that a restart continues where the last run stopped. It also changes what
// operators asked for while no controller runs. What the files mean is decided elsewhere.
package statedir

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Store keeps a controller's memory in a folder, from run to run. Only one controller
// at a time can use the folder: Open locks it.
type Store struct {
	folder *folder.Folder
	lock   *os.File // nil if the folder is only read

	operator     []byte // the content of operator.json, and when it was written
	operatorKept time.Time
}

// ErrInUse says that another controller is using the folder.
var ErrInUse = errors.New("another controller is using this folder")

// Open opens a folder, and creates it if it is missing. With ErrInUse it also returns
// a Store, which can be read but doesn't write.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	opened, err := folder.OpenExisting(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{folder: opened}
	status, err := opened.Status()
	if err = cmp.Or(err, checkOwn(dir, &status)); err == nil {
		err = s.takeLock()
	}
	if err != nil && !errors.Is(err, ErrInUse) {
		opened.Close()
		return nil, err
	}
	if err == nil {
		s.removeLeftovers()
	}
	return s, err
}

// OpenToRead opens a folder that exists, without locking it. The Store doesn't write, as after ErrInUse.
func OpenToRead(dir string) (*Store, error) {
	opened, err := folder.OpenExisting(dir)
	if err != nil {
		return nil, err
	}
	status, err := opened.Status()
	if err = cmp.Or(err, checkOwn(dir, &status)); err != nil {
		opened.Close()
		return nil, err
	}
	return &Store{folder: opened}, nil
}

// Holds reports whether this process alone uses the folder, and may write there.
func (s *Store) Holds() bool { return s.lock != nil }

// Path is the folder.
func (s *Store) Path() string { return s.folder.Path }

// removeLeftovers removes the temporary files of saves that were killed. One that can't
// be removed does no harm.
func (s *Store) removeLeftovers() {
	entries, _ := os.ReadDir(s.folder.Path) // those that were read come with an error
	for _, e := range entries {
		for _, saved := range []string{savedName, operatorName, idName, epochName} {
			if name := e.Name(); strings.HasPrefix(name, saved+".") && strings.HasSuffix(name, ".tmp") {
				_ = s.folder.Remove(name)
			}
		}
	}
}

// takeLock locks the folder until it is closed, and writes this process into the lock file.
func (s *Store) takeLock() error {
	lock, err := s.folder.Lock(lockName, 0)
	if errors.Is(err, folder.ErrLocked) {
		holder, _, _ := s.folder.Read(lockName, 32) // unknown if it can't be read
		return fmt.Errorf("%w: %s (process %s)", ErrInUse, s.folder.Path, strings.TrimSpace(string(holder)))
	}
	if err != nil {
		return err
	}
	if err = lock.Truncate(0); err == nil {
		_, err = fmt.Fprintln(lock, os.Getpid())
	}
	if err != nil {
		_ = lock.Close()
		return err
	}
	s.lock = lock
	return nil
}

// checkOwn refuses a folder or file that another user could have written: what it says
// could keep that user's processes from being ended.
func checkOwn(path string, status *unix.Stat_t) error {
	if int(status.Uid) != os.Geteuid() || status.Mode&0o002 != 0 {
		return fmt.Errorf("%s belongs to another user or may be written by every user: name another folder, or chown and chmod it", path)
	}
	return nil
}

// Close unlocks the folder.
func (s *Store) Close() error {
	s.folder.Close()
	if s.lock == nil {
		return nil
	}
	return s.lock.Close()
}

// ID names the controller that uses the folder, now and after a restart. One that can't be read is an
// error: with another one, hosts would refuse this controller.
func (s *Store) ID() (string, error) {
	if s.lock == nil {
		return "", ErrInUse
	}
	data, _, err := s.folder.Read(idName, 64)
	id := strings.TrimSpace(string(data))
	switch {
	case err == nil && len(id) == len(rand.Text()) && text.IsMadeOf(id, ""):
		return id, nil
	case err == nil:
		return "", fmt.Errorf("%s is damaged: remove it, and start once with --take-over", s.folder.Join(idName))
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	id = rand.Text()
	return id, s.folder.Put(idName, []byte(id+"\n"), 0o600, true)
}

// NextEpoch counts the starts of controllers that use the folder, from 1 on. It returns a
// number that no earlier start had, and that is on the disk. A count that can't be read is an
// error: hosts refuse a lower one of the same ID.
func (s *Store) NextEpoch() (uint64, error) {
	if s.lock == nil {
		return 0, ErrInUse
	}
	data, _, err := s.folder.Read(epochName, 64)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	last := uint64(0)
	if err == nil {
		if last, err = strconv.ParseUint(strings.TrimSpace(string(data)), 10, 63); err != nil {
			return 0, fmt.Errorf("%s is damaged: remove it and %s, and start once with --take-over: %w", s.folder.Join(epochName), idName, err)
		}
	}
	return last + 1, s.folder.Put(epochName, strconv.AppendUint(nil, last+1, 10), 0o600, true)
}

// saved is the file.
type saved struct {
	Schema string                 `json:"schema"`
	Time   time.Time              `json:"time"`
	Memory controller.FleetMemory `json:"memory"`
}

const (
	lockName    = "lock"
	savedName   = "memory.json"
	idName      = "controller-id"
	epochName   = "epoch"
	savedSchema = "genv.controller.memory/1"
	// maxSavedBytes is how much is read.
	maxSavedBytes = 1 << 30
)

// Load reads the memory of an earlier run. An error says why there is none that can
// be continued, and what that means; a missing file is no error.
func (s *Store) Load(hosts []remote.Host, now time.Time) (controller.FleetMemory, error) {
	path := s.folder.Join(savedName)
	status, err := s.folder.Stat(savedName)
	if errors.Is(err, fs.ErrNotExist) {
		return controller.FleetMemory{}, nil
	}
	if err = cmp.Or(err, checkOwn(path, &status)); err != nil {
		return controller.FleetMemory{}, err
	}
	data, _, err := s.folder.Read(savedName, maxSavedBytes)
	if err != nil {
		return controller.FleetMemory{}, err
	}
	var file saved
	if err := json.Unmarshal(data, &file); err != nil {
		return controller.FleetMemory{}, fmt.Errorf("%s is damaged: %w", path, err)
	}
	age := now.Sub(file.Time)
	switch {
	case file.Schema != savedSchema:
		return controller.FleetMemory{}, fmt.Errorf("%s is of another version: %q", path, file.Schema)
	case age > controller.MaxMemoryAge || age < 0:
		return controller.FleetMemory{}, fmt.Errorf("%s was written at %s, which is too long ago or in the future", path, file.Time.Format(time.RFC3339))
	case len(file.Memory.Rules.Hosts) > 0 && !knowsAny(&file.Memory, hosts):
		return controller.FleetMemory{}, fmt.Errorf("%s is of another fleet: it knows none of these hosts", path)
	}
	file.Memory.Rules = file.Memory.Rules.At(now)
	file.Memory.Rules.Resumed, file.Memory.Rules.Observer = true, s.lock == nil
	return file.Memory, nil
}

func knowsAny(m *controller.FleetMemory, hosts []remote.Host) bool {
	for _, h := range hosts {
		if _, known := m.Rules.Hosts[snapshot.Hostname(h.Name)]; known {
			return true
		}
	}
	return false
}

// Save writes the memory, unless another controller is using the folder.
func (s *Store) Save(m *controller.FleetMemory, now time.Time) error {
	data, err := s.Encode(m, now)
	if err != nil {
		return err
	}
	return s.Write(data)
}

// Encode is the memory as Write keeps it. Its times are by the clock of now: a clock that was
// set since makes none of them older or younger.
func (s *Store) Encode(m *controller.FleetMemory, now time.Time) ([]byte, error) {
	memory := *m
	memory.Rules = m.Rules.At(now)
	data, err := json.Marshal(saved{savedSchema, now, memory})
	if err == nil && len(data) > maxSavedBytes {
		err = fmt.Errorf("it has %d bytes, more than the %d that are read again", len(data), maxSavedBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("encode the memory: %w", err)
	}
	return data, nil
}

// Write keeps what Encode returned, unless another controller is using the folder. It may be
// called while other methods are, but not twice at a time.
func (s *Store) Write(memory []byte) error {
	if s.lock == nil {
		return nil
	}
	return s.folder.Put(savedName, memory, 0o600, true)
}
