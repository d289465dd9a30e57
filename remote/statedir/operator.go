package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// What operators asked for is in a file of its own: it holds however long no controller
// ran, and is written as soon as it changes.
const (
	operatorName     = "operator.json"
	maxOperatorBytes = 4 << 20
)

// LoadOperator reads what operators asked for. Where that can't be known, enforcement is on hold; a missing file is no
// error.
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

// KeepOperator writes what operators asked for, unless another controller is using the folder.
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

// putOperator writes the file, or removes it if operators asked for nothing.
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

// What operators asked for while no controller ran is recorded by the next controller that
// keeps a record, unless it was recorded at once. Until then it is in a file of its own.
const (
	unrecordedName = "unrecorded.json"
	maxUnrecorded  = 4 << 20 // bytes
)

// Operate carries out an action that lasts while no controller uses the folder, and returns a line about it. It is
// recorded first: in log or, if that is nil, for the next controller.
func (s *Folder) Operate(
	who operator.Author, a *operator.Instruction, log controller.Recorder, now time.Time,
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

// keepUnrecorded adds a record to those that wait.
func (s *Folder) keepUnrecorded(more ...audit.Record) error {
	records, err := s.unrecorded()
	if err != nil {
		return err
	}
	return s.folder.PutJSON(unrecordedName, append(records, more...), 0o600, true)
}

// unrecorded are the records that wait.
func (s *Folder) unrecorded() ([]audit.Record, error) {
	data, _, err := s.folder.Read(unrecordedName, maxUnrecorded)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var records []audit.Record
	if err := json.Unmarshal(data, &records); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; look at it and remove it", s.folder.Join(unrecordedName), err)
	}
	return records, nil
}

// RecordWaiting records what operators asked for while no controller ran. What could not be
// recorded continues to wait. After a crash in between it may be recorded twice.
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
