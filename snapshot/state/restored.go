package state

import (
	"encoding/json"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// RestorationGrace is for how long after a restoration what the state files lack proves
// nothing.
const RestorationGrace = time.Minute

// Restoration is a time at which root's genv found that the state files had lost
// something, and added it again. What began since root last saw them whole may
// still be missing.
type Restoration struct {
	At    time.Time          `json:"at"`
	Since snapshot.StartTime `json:"since"` // of processes that started when they were last whole
}

// InRestorationGrace says whether it proves nothing that the state files lack what a process
// claims. Each process is spared after one restoration only, since the next one
// has a later Since: who loses the state files again and again gains nothing.
func (b *Files) InRestorationGrace(start snapshot.StartTime, now time.Time) bool {
	for _, r := range b.Restorations {
		if r.recent(now) && (start == 0 || start >= r.Since) {
			return true
		}
	}
	return false
}

func (r Restoration) recent(now time.Time) bool {
	ago := now.Sub(r.At)
	return ago >= 0 && ago < RestorationGrace
}

// restoredFile is root's note of recent restorations.
const restoredFile = "restored.json"

// maxRestorations bounds that note. When it is full, the last one counts for those
// that follow.
const maxRestorations = 60

type restorationsNote struct {
	BootID       string        `json:"boot_id"`
	Restorations []Restoration `json:"restorations"`
}

// restorations are those of this boot that are recent.
func (s *Store) restorations(v *view) (list []Restoration) {
	if v.root == nil {
		return nil
	}
	var n restorationsNote
	data, err := v.root.readBounded(restoredFile, maxNote)
	if err != nil || json.Unmarshal(data, &n) != nil || n.BootID != s.machine.BootID() {
		return nil
	}
	for _, r := range n.Restorations {
		if r.recent(s.now()) {
			list = append(list, r)
		}
	}
	return list
}

// noteRestoration adds one, unless it is of the same loss as the last one.
func (s *Store) noteRestoration(v *view, good *lastGood) {
	list, since := s.restorations(v), s.lastWhole(v, good)
	if n := len(list); n == maxRestorations || n > 0 && list[n-1].Since == since {
		return
	}
	n := restorationsNote{good.BootID, append(list, Restoration{At: s.now().UTC(), Since: since})}
	if data, err := json.Marshal(n); err == nil {
		_ = v.root.put(restoredFile, data, 0o644)
	}
}

// wholeFile is root's note of when it last saw the state files whole, which is
// later than when the copy was taken if nothing has changed since.
const wholeFile = "whole.json"

type wholeNote struct {
	BootID string             `json:"boot_id"`
	Start  snapshot.StartTime `json:"start_time"` // of processes that started then
}

// lastWhole is the start time of processes that started when root last saw the
// state files whole.
func (s *Store) lastWhole(v *view, good *lastGood) snapshot.StartTime {
	var n wholeNote
	data, err := v.root.readBounded(wholeFile, maxNote)
	if err != nil || json.Unmarshal(data, &n) != nil || n.BootID != good.BootID {
		return good.Uptime
	}
	return max(n.Start, good.Uptime)
}

// noteWhole is not synced: without it, the copy's time counts.
func (s *Store) noteWhole(v *view, at snapshot.StartTime) {
	data, err := json.Marshal(wholeNote{s.machine.BootID(), at})
	if err != nil || v.root.remove(wholeFile+tempSuffix) != nil {
		return
	}
	if v.root.create(wholeFile+tempSuffix, data, 0o644, false) == nil {
		_ = unix.Renameat(v.root.fd, wholeFile+tempSuffix, v.root.fd, wholeFile)
	}
}
