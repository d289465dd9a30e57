package local

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// sparedFor is for how long after a restoration a claim that is not registered
// proves nothing.
const sparedFor = time.Minute

// spareAfterRestore makes the environment of those processes unknown that began
// after the copy from which the state files were restored, and claim one that is
// not registered: it may have begun in between, and have got lost. It returns a
// warning for it.
func spareAfterRestore(s *snapshot.Snapshot, books *state.Books, now time.Time) []string {
	since := now.Sub(books.RestoredAt)
	if books.RestoredAt.IsZero() || since < 0 || since >= sparedFor {
		return nil
	}
	spared := 0
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.EID != "" && s.Environment(p.EID) == nil && (p.Start == 0 || p.Start >= books.CopyStart) {
			p.EID, p.EnvUnknown = "", true
			spared++
		}
	}
	if spared == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the state files were restored from a copy %s ago: the environments of %d processes that began since that copy are taken for unknown until a minute has passed",
		since.Round(time.Second), spared)}
}
