package state

import (
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// Conflict is an attachment that is in the way of another user's request.
type Conflict struct {
	Index    snapshot.DeviceIndex
	EID      snapshot.EnvID
	UID      *snapshot.UID     // nil where the environment is not registered
	Username snapshot.Username // empty where not told
	Memory   snapshot.Memory   // unknown for the whole device
	Since    snapshot.Date
}

// String is one line for people. Texts that users chose are quoted and cut.
func (a Conflict) String() string {
	text := fmt.Sprintf("device %d: environment %s", a.Index, snapshot.Shown(string(a.EID)))
	switch {
	case a.UID != nil && a.Username != "":
		text += fmt.Sprintf(" of %s(%d)", snapshot.Shown(string(a.Username)), *a.UID)
	case a.UID != nil:
		text += fmt.Sprintf(" of uid %d", *a.UID)
	}
	if a.Memory.Known() {
		text += fmt.Sprintf(" has %s", a.Memory)
	} else {
		text += " has it"
	}
	return text + fmt.Sprintf(" since %s", a.Since)
}

// holders are the attachments of other environments: to one device, or to all if
// index is nil.
func (b *Files) holders(eid snapshot.EnvID, index *snapshot.DeviceIndex) []Conflict {
	var list []Conflict
	environments := b.byID()
	for i := range b.Devices {
		d := &b.Devices[i]
		if index != nil && d.Index != *index {
			continue
		}
		for _, a := range d.Attachments {
			if a.EID == eid {
				continue
			}
			by := Conflict{Index: d.Index, EID: a.EID, Memory: a.GPUMemory, Since: a.Time}
			if env := environments[a.EID]; env != nil {
				uid := env.UID
				by.UID, by.Username = &uid, env.Username
			}
			list = append(list, by)
		}
	}
	return list
}
