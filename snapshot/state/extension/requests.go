// Package extension reads and writes the requests of users to keep their attachments for
// longer (`genv extend`). It decides nothing: what is granted is for package enforce.
//
//	requests := extension.Requests{Dir: "/var/tmp/genv"}
//	err := requests.Add(files, uid, list)    // as the user, with the lock of the state files
//	list, warnings := requests.Read(files)   // as root
package extension

import (
	"cmp"
	"crypto/rand"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/notes"
)

// Requests are those of all users of a host; see notes.Folder. Dir is its state folder.
type Requests struct {
	Dir   string
	Owned func() (string, error)
}

func (r Requests) notes() notes.Folder[snapshot.Extension] {
	return notes.Folder[snapshot.Extension]{
		Dir: r.Dir, Owned: r.Owned, Name: "extend", What: "the requests of genv extend",
		Encode: snapshot.EncodeExtensions, Decode: snapshot.DecodeExtensions,
		About: func(x *snapshot.Extension) notes.Attachment {
			return notes.Attachment{UID: x.UID, EID: x.EID, Index: x.Index, At: x.Attached}
		},
		Owner: func(x *snapshot.Extension, uid snapshot.UID) { x.UID = uid },
	}
}

// Add is notes.Folder.Add. A request without an ID gets a random one.
func (r Requests) Add(files *state.Files, uid snapshot.UID, list []snapshot.Extension) error {
	list = slices.Clone(list)
	for i := range list {
		list[i].ID = cmp.Or(list[i].ID, rand.Text()[:16])
	}
	return r.notes().Add(files, uid, list)
}

// Move is notes.Folder.Move.
func (r Requests) Move(files *state.Files, to Requests) error {
	return r.notes().Move(files, to.notes())
}

// Read is notes.Folder.Read.
func (r Requests) Read(files state.Files) (list []snapshot.Extension, warnings []string) {
	return r.notes().Read(files)
}
