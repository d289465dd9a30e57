package service

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// WaitsFile in root's run folder lists the waits. It is replaced when one begins or ends.
const WaitsFile = "waits.json"

// noted lets a wait keep its place when the service restarts. Times are since boot.
type noted struct {
	snapshot.Wait
	PID   snapshot.PID       `json:"pid,omitempty"` // 0 if it can't be found again
	Start snapshot.StartTime `json:"start,omitempty"`
	Since time.Duration      `json:"since_boot_ns"`
}

type waitsNote struct {
	Waits  []noted                        `json:"waits"`
	Passed map[snapshot.UID]time.Duration `json:"passed_until_ns,omitempty"` // see waits.passed
}

var waitsFile = folder.Note[waitsNote]{Name: WaitsFile, Max: 4 << 20, Mode: 0o644, Invalid: snapshot.ErrInvalid}

// Waits returns the waits noted in a run folder; nil if unknown. alive says whether a process runs.
func Waits(run string, alive func(snapshot.PID, snapshot.StartTime) bool) []snapshot.Wait {
	note, err := waitsFile.Read(run)
	if err != nil {
		return nil
	}
	list, now := []snapshot.Wait{}, sinceBoot()
	for i := range note.Waits {
		if n := &note.Waits[i]; n.Since <= now && (n.PID == 0 || alive(n.PID, n.Start)) {
			n.Seconds, n.Passed = int64((now - n.Since).Seconds()), now < note.Passed[n.UID]
			list = append(list, n.Wait)
		}
	}
	return list
}

// note writes the waits if they changed; s.waits.mu is held.
func (s *Server) note(now time.Duration) {
	q := &s.waits
	if s.Run == "" {
		return
	}
	maps.DeleteFunc(q.passed, func(_ snapshot.UID, until time.Duration) bool { return until <= now })
	next := waitsNote{Waits: append([]noted{}, q.disconnected...), Passed: q.passed}
	for _, w := range q.list {
		if w.done {
			continue
		}
		n := w.noted
		if o := q.offerTo(w.ID); o != nil {
			n.Offered = o.gpus
		}
		next.Waits = append(next.Waits, n)
	}
	data, err := json.Marshal(next)
	if err == nil && string(data) != q.file {
		if err = waitsFile.Write(s.Run, next); err == nil {
			q.file = string(data)
		}
	}
	s.failedOnce(&q.noteError, err)
}

func (s *Server) loadWaits() {
	q := &s.waits
	q.changed, q.begun = make(chan struct{}, 1), sinceBoot()
	q.wake() // to note that no one waits
	if s.Run == "" {
		return
	}
	note, err := waitsFile.Read(s.Run)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.failed(err)
	}
	q.disconnected, q.passed = note.Waits, note.Passed
	maps.DeleteFunc(q.passed, func(_ snapshot.UID, until time.Duration) bool { return until > q.begun+passedFor })
}

// stillDisconnected returns the waits of an earlier service whose commands still run, and may reconnect.
func (s *Server) stillDisconnected(list []noted, now time.Duration) []noted {
	return slices.DeleteFunc(slices.Clone(list), func(n noted) bool {
		alive, err := s.Proc.Alive(n.PID, n.Start)
		return n.PID == 0 || n.Since > now || err == nil && !alive
	})
}
