package disk

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// looksFile is root's note about its looks at the state files, which no user can write.
const looksFile = "looks.json"

// looksEvery is how old the time of the last look in the note may be, if nothing else changes.
const looksEvery = time.Minute

type looksNote struct {
	BootID string `json:"boot_id"`
	state.Looks
}

// look notes a look at the files as they are now. Another user's genv only reads the note, and
// so does root's without the lock. Without a note, nothing is known of ages.
func (t *transaction) look(start snapshot.StartTime, write bool) {
	boot := t.system.BootID()
	if t.access.root == nil || boot == "" {
		return
	}
	var before looksNote
	if !t.access.root.ReadJSON(looksFile, maxFileSize, &before) || before.BootID != boot {
		before = looksNote{BootID: boot}
	}
	if write = write && (t.access.writable || t.dir.owned); !write && before.At == 0 {
		return
	}
	noted := before.At
	if noted != 0 {
		before.At = min(max(noted, snapshot.StartTime(t.looked.Load())), start)
	}
	t.looks = before.Look(&t.files, state.Moment{Wall: t.now(), Start: start})
	same := slices.Equal(before.Environments, t.looks.Environments) && slices.Equal(before.Attachments, t.looks.Attachments)
	if write && (noted == 0 || !same || start.Sub(noted) >= looksEvery) {
		t.putLooks(&t.access)
	}
}

// putLooks is not synced: no age outlives a crash of the machine.
func (t *transaction) putLooks(to *access) {
	if to.root != nil {
		_ = to.root.PutJSON(looksFile, looksNote{t.system.BootID(), t.looks}, ownedMode, false)
	}
}
