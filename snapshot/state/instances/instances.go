// Package instances keeps which MIG instances attachments are about (`genv attach --mig`).
// In the state files such an attachment is one to the whole device, with the memory of the
// instances as its capacity, which is all that genv 1.4.3 sees.
//
//	notes := instances.Notes{Dir: "/var/tmp/genv"}
//	notes.Mark(files)                    // sets Attachment.Instances
//	err := notes.Save(files, eid)        // with the lock of the state files
//
// What a user notes counts only for attachments of environments of that user.
package instances

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/notes"
)

// Notes are those of all users of a host; see notes.Folder. Dir is its state folder.
type Notes struct {
	Dir   string
	Owned func() (string, error)
}

// note is about an attachment; it is JSON as it is.
type note struct {
	UID       snapshot.UID         `json:"-"`
	EID       snapshot.EnvID       `json:"eid"`
	Index     snapshot.DeviceIndex `json:"device"`
	Attached  string               `json:"attached"`
	Instances []snapshot.GPUUUID   `json:"mig"`
	at        snapshot.Date
}

func (n Notes) notes() notes.Folder[note] {
	return notes.Folder[note]{
		Dir: n.Dir, Owned: n.Owned, Name: "mig", What: "the MIG instances of attachments",
		Encode: func(list []note) ([]byte, error) { return snapshot.Marshal(list) }, Decode: decode,
		About: func(x *note) notes.Attachment {
			return notes.Attachment{UID: x.UID, EID: x.EID, Index: x.Index, At: x.at}
		},
		Owner: func(x *note, uid snapshot.UID) { x.UID = uid },
	}
}

// decode checks every field; its error wraps snapshot.ErrInvalid.
func decode(data []byte) ([]note, error) {
	var list []note
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%w: %w", snapshot.ErrInvalid, err)
	}
	for i := range list {
		n := &list[i]
		var err error
		if n.at, err = snapshot.ParseDate(n.Attached); err != nil {
			return nil, fmt.Errorf("%w: %w", snapshot.ErrInvalid, err)
		}
		err = cmp.Or(snapshot.CheckName("the environment id", string(n.EID)), snapshot.CheckInstances(n.Instances))
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Mark sets the Instances of the attachments in files. What is wrong with a note becomes a
// warning of files: without it the attachment is to the whole device, with a capacity.
// It may be called again when files have more attachments.
func (n Notes) Mark(files *state.Files) {
	list, warnings := n.notes().Read(*files)
	for _, warning := range warnings {
		if !slices.Contains(files.Warnings, warning) {
			files.Warnings = append(files.Warnings, warning)
		}
	}
	for i := range list {
		files.Device(list[i].Index).Attachment(list[i].EID).Instances = list[i].Instances
	}
}

// Save notes the Instances of all attachments of an environment. The caller is its user or
// root, and holds the lock.
func (n Notes) Save(files *state.Files, eid snapshot.EnvID) error {
	env := files.Environment(eid)
	if env == nil {
		return fmt.Errorf("%w: %q", state.ErrNoEnvironment, eid)
	}
	var list []note
	for i := range files.Devices {
		d := &files.Devices[i]
		if a := d.Attachment(eid); a != nil && len(a.Instances) > 0 {
			list = append(list, note{UID: env.UID, EID: eid, Index: d.Index, Attached: a.Time.String(), Instances: a.Instances, at: a.Time})
		}
	}
	return n.notes().Add(files, env.UID, list)
}

// Move copies the notes to another folder; see notes.Folder.Move.
func (n Notes) Move(files *state.Files, to Notes) error { return n.notes().Move(files, to.notes()) }
