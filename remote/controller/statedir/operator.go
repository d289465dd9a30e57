package statedir

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/seed-3119e985/genv/remote/operator"
)

// What operators asked for is in a file of its own: it holds however long no controller
// ran, and is written as soon as it changes.
const (
	operatorName     = "operator.json"
	maxOperatorBytes = 4 << 20
	// rewriteAfter is when the file is written again although nothing changed: it has the
	// time, which shows that the clock was set back.
	rewriteAfter = time.Minute
)

// LoadOperator reads what operators asked for, in this or an earlier run. With an error,
// which says why it can't be known, enforcement is on hold; a missing file is no error.
func (s *Store) LoadOperator(now time.Time) (operator.State, error) {
	status, err := s.folder.Stat(operatorName)
	if errors.Is(err, fs.ErrNotExist) {
		return operator.State{}, nil
	}
	path := s.folder.Join(operatorName)
	if err = cmp.Or(err, checkOwn(path, &status)); err != nil {
		return operator.Lost(now), err
	}
	data, _, err := s.folder.Read(operatorName, maxOperatorBytes)
	if err != nil {
		return operator.Lost(now), err
	}
	state, err := operator.Decode(data, now)
	if err != nil {
		err = fmt.Errorf("%s is damaged: %w", path, err)
		if s.lock != nil {
			err = errors.Join(err, s.folder.MoveAside(operatorName, now))
		}
		state = operator.Lost(now)
		return state, errors.Join(err, s.KeepOperator(state, now))
	}
	state.Exemptions = state.Exemptions.From(now)
	return state, nil
}

// OperatorTime is when what operators asked for was written; zero if that is not known.
func (s *Store) OperatorTime() time.Time {
	status, err := s.folder.Stat(operatorName)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(status.Mtim.Unix())
}

// KeepOperator writes what operators asked for, unless that is in the file already or
// another controller is using the folder.
func (s *Store) KeepOperator(state operator.State, now time.Time) error {
	if s.lock == nil {
		return ErrInUse
	}
	content, err := state.Content(now)
	if err != nil {
		return fmt.Errorf("encode %s: %w", operatorName, err)
	}
	since := now.Sub(s.operatorKept)
	if bytes.Equal(content, s.operator) && since >= 0 && (since < rewriteAfter || state.Empty()) {
		return nil
	}
	data, err := state.Encode(now)
	if err == nil {
		err = s.folder.Put(operatorName, data, 0o600, true)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", operatorName, err)
	}
	s.operator, s.operatorKept = content, now
	return nil
}
