package hardware

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

const (
	guardFile = "guard.json"
	maxGuard  = 1 << 20 // bytes
)

// guardStatus is what counts here of guard.json, which the guard's keeper writes.
type guardStatus struct {
	Mode     snapshot.GuardMode `json:"mode"`
	Until    time.Time          `json:"until"`
	Reason   string             `json:"reason"`
	Problems []string           `json:"problems"`
	Veto     bool               `json:"veto"`
	// Unpinned: the guard ends at once with the process Keeper.
	Unpinned    bool               `json:"unpinned"`
	Keeper      snapshot.PID       `json:"keeper"`
	KeeperStart snapshot.StartTime `json:"keeper_start"`
	Given       time.Time          `json:"given"` // the order, for the last time
	Order       *struct {
		Mode    snapshot.GuardMode `json:"mode"`
		LeaseMS int64              `json:"lease_ms"`
	} `json:"order"`
}

// guardNote is guard.json, as root's genv wrote it.
var guardNote = folder.Note[guardStatus]{Name: guardFile, Max: maxGuard, Invalid: ErrGarbled}

// on says whether a mode is one of a guard that is on.
func on(m snapshot.GuardMode) bool { return m == snapshot.GuardWatch || m == snapshot.GuardEnforce }

// ended says whether the time of what the file says is over.
func (s *guardStatus) ended(now time.Time) bool { return !s.Until.IsZero() && !now.Before(s.Until) }

// endedWithKeeper says whether a guard without pins is gone, since its process is. Another
// process may have its PID.
func (s *guardStatus) endedWithKeeper(processes proc.FS) bool {
	if !s.Unpinned {
		return false
	}
	alive, err := processes.Alive(s.Keeper, s.KeeperStart)
	return err == nil && !alive
}

// IsGuarded says whether a guard is on at this time, according to guard.json in dir: its mode
// is watch or enforce, and its time isn't over. A file of root's that can't be understood
// counts as a guard: genv then names devices by UUID, which is right without one, too.
func IsGuarded(dir string, now time.Time) bool {
	s, err := guardNote.Read(dir)
	if err != nil {
		return errors.Is(err, ErrGarbled)
	}
	return on(s.Mode) && !s.ended(now)
}

// Guard is what the guard does at this time, according to guard.json in dir; nil if that
// can't be said. Without the file, no guard was on since the machine was started.
func Guard(dir string, now time.Time, processes proc.FS) *snapshot.Guard {
	s, err := guardNote.Read(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &snapshot.Guard{Mode: snapshot.GuardOff}
	case err != nil || !on(s.Mode) && s.Mode != snapshot.GuardOff:
		return nil
	}
	g := &snapshot.Guard{Mode: s.Mode, Reason: s.Reason}
	if on(s.Mode) && (s.ended(now) || s.endedWithKeeper(processes)) {
		g.Mode, g.Reason = snapshot.GuardOff, "the process that kept the guard has ended"
	}
	if g.Mode == snapshot.GuardOff && s.ordered(now) {
		g.Mode = snapshot.GuardUnable
	}
	switch {
	case s.Order == nil: // it is off, as if there never was a guard
		g.Reason = ""
	case g.Reason != "":
		g.Reason = strings.Join(slices.Concat([]string{g.Reason}, s.Problems), "; ")
	}
	return g
}

// ordered says whether an order to watch or to enforce is in force.
func (s *guardStatus) ordered(now time.Time) bool {
	return s.Order != nil && !s.Veto && on(s.Order.Mode) && now.Before(s.Given.Add(time.Duration(s.Order.LeaseMS)*time.Millisecond))
}
