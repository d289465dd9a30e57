// Package statedir keeps a controller's memory and operators' requests for the next run or leader: in a folder
// (--state-dir), with an election also in etcd. While no controller runs, it accepts operators' requests.
//
//	folder, err := statedir.Open("/var/lib/genv-controller")
//	store := &statedir.Shared{Folder: folder, Cluster: client, Key: "/genv/lab", Self: id, Epoch: epoch}
//	memory, err := store.Load(ctx)
package statedir

import (
	"cmp"
	"context"
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

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Folder is a controller.Store, for one controller at a time: Open locks it.
type Folder struct {
	Now func() time.Time // time.Now by default

	folder *folder.Folder
	lock   *os.File // nil if read-only
}

// ErrInUse means that another controller is using the folder.
var ErrInUse = errors.New("another controller is using this folder")

// Open opens or creates a folder. With ErrInUse it also returns a read-only Folder.
func Open(dir string) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s, err := OpenToRead(dir)
	if err != nil {
		return nil, err
	}
	s.folder.Spare = true
	switch err = s.takeLock(); {
	case err == nil:
		for _, name := range []string{MemoryName, operatorName, idName, epochName} { // of killed saves
			s.folder.RemoveLeftovers(name)
		}
	case !errors.Is(err, ErrInUse):
		s.folder.Close()
		return nil, err
	}
	return s, err
}

// OpenToRead opens an existing folder read-only, without locking it.
func OpenToRead(dir string) (*Folder, error) {
	opened, err := folder.OpenExisting(dir)
	if err != nil {
		return nil, err
	}
	status, err := opened.Status()
	if err = cmp.Or(err, checkOwn(dir, &status)); err != nil {
		opened.Close()
		return nil, err
	}
	return &Folder{Now: time.Now, folder: opened}, nil
}

// Holds says whether this process locked the folder, and may write.
func (s *Folder) Holds() bool { return s.lock != nil }

// Path of the folder.
func (s *Folder) Path() string { return s.folder.Path }

// takeLock locks the folder until closed. The lock file has our PID.
func (s *Folder) takeLock() error {
	lock, err := s.folder.Lock(lockName, 0)
	if errors.Is(err, folder.ErrLocked) {
		holder, _, _ := s.folder.Read(lockName, 32) // maybe unreadable
		return fmt.Errorf("%w: %s (process %s)", ErrInUse, s.folder.Path, strings.TrimSpace(string(holder)))
	}
	if err != nil {
		return err
	}
	pid := fmt.Appendln(nil, os.Getpid())
	if _, err = lock.WriteAt(pid, 0); err == nil { // works on a full disk, as it replaces another PID
		err = lock.Truncate(int64(len(pid)))
	}
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	s.lock = lock
	return nil
}

// checkOwn refuses a folder or file that another user could have written.
func checkOwn(path string, status *unix.Stat_t) error {
	if int(status.Uid) != os.Geteuid() || status.Mode&0o002 != 0 {
		return fmt.Errorf("%s belongs to another user or may be written by every user: name another folder, or "+
			"chown and chmod it", path)
	}
	return nil
}

// read refuses files that another user could have written.
func (s *Folder) read(name string, limit int64) ([]byte, error) {
	status, err := s.folder.Stat(name)
	if err = cmp.Or(err, checkOwn(s.folder.Join(name), &status)); err != nil {
		return nil, err
	}
	data, _, err := s.folder.Read(name, limit)
	return data, err
}

// Close unlocks the folder.
func (s *Folder) Close() error {
	s.folder.Close()
	if s.lock == nil {
		return nil
	}
	return s.lock.Close()
}

// ID names the controller of this folder. A damaged one isn't replaced, as hosts would refuse another.
func (s *Folder) ID() (string, error) {
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

// NextEpoch counts controllers' starts from 1, on disk. An unreadable count is an error, as hosts refuse a lower one
// for the same ID.
func (s *Folder) NextEpoch() (uint64, error) {
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
			return 0, fmt.Errorf("%s is damaged: remove it and %s, and start once with --take-over: %w",
				s.folder.Join(epochName), idName, err)
		}
	}
	return last + 1, s.folder.Put(epochName, strconv.AppendUint(nil, last+1, 10), 0o600, true)
}

// MemoryName is the file with the memory.
const MemoryName = "memory.json"

// Operators' requests have a file, as they hold however long no controller runs, and are written at each change.
// Requests made meanwhile wait in unrecorded.json for a controller that keeps a record, unless recorded at once.
const (
	lockName         = "lock"
	idName           = "controller-id"
	epochName        = "epoch"
	operatorName     = "operator.json"
	maxOperatorBytes = 4 << 20
	unrecordedName   = "unrecorded.json"
	maxUnrecorded    = 4 << 20 // bytes
)

// Load implements controller.Store, with an earlier run's memory and operators' requests.
func (s *Folder) Load(context.Context) (controller.FleetMemory, error) {
	m, _, err := s.load(s.Now())
	return m, err
}

func (s *Folder) load(now time.Time) (m controller.FleetMemory, written time.Time, err error) {
	data, err := s.read(MemoryName, controller.MaxSaved)
	if err == nil {
		if m, written, err = controller.DecodeMemory(data, now); err != nil {
			err = fmt.Errorf("%s: %w", s.folder.Join(MemoryName), err)
		}
	}
	if err = folder.Ignore(err, fs.ErrNotExist); err != nil {
		err = fmt.Errorf("the memory of the last run is dropped, so all times start again: %w", err)
	}
	m.ReadOnly = s.lock == nil
	var unknown error
	if m.Operator, unknown = s.LoadOperator(now); unknown != nil {
		unknown = fmt.Errorf("what operators asked for is not known, so enforcement is on hold until an operator "+
			"releases it: %w", unknown)
	}
	return m, written, errors.Join(err, unknown)
}

// Save implements controller.Store. It does nothing if another controller uses the folder.
func (s *Folder) Save(_ context.Context, saved controller.Saved) error {
	if s.lock == nil {
		return nil
	}
	if err := s.putOperator(saved.Operator); err != nil {
		return fmt.Errorf("not saved, so it is lost at a restart: %w", err)
	}
	if err := s.folder.Put(MemoryName, saved.Memory, 0o600, true); err != nil {
		return fmt.Errorf("the memory is not saved, so times start again at a restart: %w", err)
	}
	return nil
}

// LoadOperator reads operators' requests. If they are unreadable, enforcement is on hold.
func (s *Folder) LoadOperator(now time.Time) (operator.State, error) {
	data, err := s.read(operatorName, maxOperatorBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return operator.State{}, nil
	case err != nil:
		return operator.Lost(now), err
	}
	state, err := operator.Decode(data, now)
	if err != nil {
		err = fmt.Errorf("%s is damaged: %w", s.folder.Join(operatorName), err)
		if s.lock != nil {
			err = errors.Join(err, s.folder.RenameCorrupt(operatorName, now))
		}
		state = operator.Lost(now)
		return state, errors.Join(err, s.KeepOperator(state, now))
	}
	return state, nil
}

// KeepOperator writes operators' requests, unless another controller uses the folder.
func (s *Folder) KeepOperator(state operator.State, now time.Time) error {
	if s.lock == nil {
		return ErrInUse
	}
	var data []byte
	if !state.Empty() {
		var err error
		if data, err = state.Encode(now); err != nil {
			return fmt.Errorf("encode %s: %w", operatorName, err)
		}
	}
	return s.putOperator(data)
}

func (s *Folder) putOperator(data []byte) (err error) {
	if len(data) > 0 {
		err = s.folder.Put(operatorName, data, 0o600, true)
	} else {
		err = folder.Ignore(s.folder.Remove(operatorName), fs.ErrNotExist)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", operatorName, err)
	}
	return nil
}

// Operate acts while no controller runs. It records first: in log, or for the next controller.
func (s *Folder) Operate(
	who operator.Author, a *operator.Action, log controller.Recorder, now time.Time,
) (string, error) {
	if s.lock == nil {
		return "", ErrInUse
	}
	if err := a.Check(); err != nil {
		return "", err
	}
	state, err := s.LoadOperator(now)
	if err != nil {
		return "", err
	}
	next, line, err := state.After(who, a, now)
	if err != nil {
		return "", err
	}
	record := controller.RecordOfAction(who, a, line)
	record.Time = now.UTC()
	keep := s.keepUnrecorded
	if log != nil {
		keep = log.Append
	}
	if err := keep(record); err != nil {
		return "", fmt.Errorf("nothing was done, since it could not be recorded: %w", err)
	}
	if err := s.KeepOperator(next, now); err != nil {
		record.Status, record.Reason = order.StatusFailed, err.Error()
		return "", errors.Join(err, keep(record))
	}
	return line, nil
}

func (s *Folder) keepUnrecorded(more ...audit.Record) error {
	records, err := s.unrecorded()
	if err != nil {
		return err
	}
	return s.folder.PutJSON(unrecordedName, append(records, more...), 0o600, true)
}

func (s *Folder) unrecorded() ([]audit.Record, error) {
	data, _, err := s.folder.Read(unrecordedName, maxUnrecorded)
	if err != nil {
		return nil, folder.Ignore(err, fs.ErrNotExist)
	}
	var records []audit.Record
	if err := json.Unmarshal(data, &records); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; look at it and remove it", s.folder.Join(unrecordedName), err)
	}
	return records, nil
}

// RecordWaiting records requests made meanwhile; after a crash maybe twice.
func (s *Folder) RecordWaiting(log controller.Recorder) error {
	if s.lock == nil {
		return nil
	}
	records, err := s.unrecorded()
	if err != nil || len(records) == 0 {
		return err
	}
	if err := log.Append(records...); err != nil {
		return err
	}
	return s.folder.Remove(unrecordedName)
}
