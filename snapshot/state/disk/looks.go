package disk

import (
	"crypto/sha256"
	"encoding/hex"
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
	// Before counts instead as long as devices.json is still that of the sum: genv may be
	// killed between the note and the devices.json with other indices.
	Before *earlierLooks `json:"before,omitempty"`
}

type earlierLooks struct {
	Sum   string      `json:"devices_sha256"`
	Looks state.Looks `json:"looks"`
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// applyLooks adds to the files what root's note says about them. Without a note, nothing is
// known of ages.
func (t *transaction) applyLooks() {
	boot := t.System.BootID()
	if t.access.root == nil || boot == "" {
		return
	}
	var n looksNote
	if t.access.root.ReadJSON(looksFile, 2*maxFileSize, &n) && n.BootID == boot {
		if t.looks = n.Looks; n.Before != nil && n.Before.Sum == sumOf(t.onDisk[state.Devices]) {
			t.looks = n.Before.Looks
		}
	}
	t.files.KeepsNote = t.access.writable || t.dir.owned && t.dir.IsOurs()
	t.looks.Apply(&t.files)
	t.markFiles() // what is kept elsewhere may be about GPUs that have other indices now
}

// look is a look at the files as they are now. One without KeepsNote, or without the lock,
// notes nothing.
func (t *transaction) look(start snapshot.StartTime) (next state.Looks, same bool) {
	before := t.looks
	if t.access.root == nil || before.At == 0 && !t.files.KeepsNote {
		return before, true
	}
	if before.At != 0 {
		before.At = min(max(before.At, snapshot.StartTime(t.looked.Load())), start)
	}
	next = before.Look(&t.files, state.Moment{Wall: t.Now(), Start: start})
	return next, t.looks.At != 0 && next.Same(&before) && start.Sub(t.looks.At) < looksEvery
}

// notePending notes a look before devices.json gets the present indices of GPUs.
func (t *transaction) notePending(start snapshot.StartTime) {
	if !t.files.KeepsNote || t.files.Renumbered == "" {
		return
	}
	next, _ := t.look(start)
	t.putLooks(&t.access, next, &earlierLooks{sumOf(t.onDisk[state.Devices]), t.looks})
	t.step("noted the indices")
}

// noteLook notes a look. The files are written.
func (t *transaction) noteLook(start snapshot.StartTime) {
	next, same := t.look(start)
	if t.looks = next; t.files.KeepsNote && (!same || t.files.Renumbered != "") {
		t.putLooks(&t.access, next, nil)
	}
}

// putLooks is not synced: no age outlives a crash of the machine.
func (t *transaction) putLooks(to *folderAccess, looks state.Looks, before *earlierLooks) {
	if to.root != nil {
		_ = to.root.PutJSON(looksFile, looksNote{t.System.BootID(), looks, before}, ownedMode, before != nil)
	}
}
