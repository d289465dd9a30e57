// Package instances keeps which MIG instances attachments are about (`genv attach --mig`). In the state files such an
// attachment is one to the whole device, with the memory of the instances as its capacity: genv 1.4.3 sees no more.
// What a user notes counts only for attachments of environments of that user.
//
//	notes := instances.Notes{Dir: "/var/tmp/genv"}
//	notes.Mark(files)                    // sets Attachment.Instances
//	err := notes.Save(files, eid)        // with the lock of the state files
package instances

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// Notes are those of all users of a host: a file for each uid, in a folder of their own.
type Notes struct {
	Dir string // the state folder of the host
	// Owned is the folder of the state files if they are root's, else empty: root writes all notes there. With an error
	// that isn't known. Nil for never.
	Owned func() (string, error)
}

type attachmentNote struct {
	UID       snapshot.UID         `json:"-"`
	EID       snapshot.EnvID       `json:"eid"`
	Index     snapshot.DeviceIndex `json:"device"`
	Attached  string               `json:"attached"`
	Instances []snapshot.GPUUUID   `json:"mig"`
	// GPU is the device, where root has noted which one the index is: it may get another index.
	GPU snapshot.GPUUUID `json:"gpu,omitempty"`
	at  snapshot.Date
}

// Mark sets the Instances of the attachments. What is wrong with a note is a warning: without it an attachment is to
// the whole device, with a capacity. It may be called again.
func (n Notes) Mark(files *state.Files) {
	list, warnings := n.list(files)
	for _, warning := range warnings {
		if !slices.Contains(files.Warnings, warning) {
			files.Warnings = append(files.Warnings, warning)
		}
	}
	for i := range files.Devices {
		for k := range files.Devices[i].Attachments {
			files.Devices[i].Attachments[k].Instances = nil
		}
	}
	for i := range list {
		list[i].attachment(files).Instances = list[i].Instances
	}
}

// Save notes the Instances of all attachments of an environment. The caller is its user or root, and holds the lock.
func (n Notes) Save(files *state.Files, eid snapshot.EnvID) error {
	env := files.Environment(eid)
	if env == nil {
		return fmt.Errorf("%w: %q", state.ErrNoEnvironment, eid)
	}
	var list []attachmentNote
	for i := range files.Devices {
		d := &files.Devices[i]
		if a := d.Attachment(eid); a != nil && len(a.Instances) > 0 {
			list = append(list, attachmentNote{
				UID: env.UID, EID: eid, Index: d.Index, Attached: a.Time.String(),
				Instances: a.Instances, GPU: d.UUID, at: a.Time,
			})
		}
	}
	return n.add(files, env.UID, list)
}

// Move copies the notes to another folder, when root takes over the files or gives them back. It needs the lock.
func (n Notes) Move(files *state.Files, to Notes) error {
	byUser := make(map[snapshot.UID][]attachmentNote)
	list, _ := n.list(files)
	for _, x := range list {
		byUser[x.UID] = append(byUser[x.UID], x)
	}
	for _, uid := range slices.Sorted(maps.Keys(byUser)) {
		if err := to.add(files, uid, byUser[uid]); err != nil {
			return err
		}
	}
	return nil
}
