// Package instances notes which MIG instances attachments use (`genv attach --mig`). For genv 1.4.3, in the state
// files, these cover the whole device, with the instances' memory as capacity. A user's notes only count for own
// environments.
//
//	notes := instances.Notes{Dir: "/var/tmp/genv"}
//	notes.Mark(files)                    // sets Attachment.Instances
//	err := notes.Save(files, eid)        // with the lock of the state files
package instances

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Notes are a file per uid, in a separate folder.
type Notes struct {
	Dir string // the host's state folder
	// Owned returns the folder of root's state files, where root writes all notes; else "". It may be nil.
	Owned func() (string, error)
}

type attachmentNote struct {
	UID       snapshot.UID         `json:"-"`
	EID       snapshot.EnvID       `json:"eid"`
	Index     snapshot.DeviceIndex `json:"device"`
	Attached  snapshot.Date        `json:"attached"`
	Instances []snapshot.GPUUUID   `json:"mig"`
	GPU       snapshot.GPUUUID     `json:"gpu,omitempty"` // empty if unknown: see state.RootNote
}

// Mark sets the attachments' Instances. An invalid note is a warning: the attachment covers the whole device.
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

// Save notes an environment's Instances. The caller is its user or root, and holds the lock.
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
				UID: env.UID, EID: eid, Index: d.Index, Attached: a.Time, Instances: a.Instances, GPU: d.UUID,
			})
		}
	}
	return n.add(files, env.UID, list)
}

// Move copies the notes when root takes over the state, or gives it back. The lock is held.
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

const (
	folderName = "mig" // of the notes' folder, which genv 1.4.3 ignores
	what       = "the MIG instances of attachments"
	mode       = 0o644 // of the files: only their users write them

	maxBytes    = 16 << 10 // per user
	maxNotes    = 64       // per user
	maxUsers    = 2048     // with files to open, as anyone may register any uid
	maxWarnings = 20
)

// add replaces notes about the same attachments, and drops obsolete ones. The caller is that user or root.
func (n Notes) add(files *state.Files, uid snapshot.UID, list []attachmentNote) error {
	dir, owned, err := n.open(true)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer dir.Close()
	before, _ := read(dir, uid, owned) // unreadable ones are replaced
	all := slices.DeleteFunc(before, func(old attachmentNote) bool {
		same := func(x attachmentNote) bool { return x.EID == old.EID && x.Index == old.Index }
		return old.attachment(files) == nil || slices.ContainsFunc(list, same)
	})
	all = append(all, list...)
	if len(all) > maxNotes {
		return fmt.Errorf("%s: %d are more than the maximum of %d: name the GPUs with --index", what, len(all),
			maxNotes)
	}
	data, err := snapshot.Marshal(all)
	if err != nil {
		return err
	}
	if err := dir.Put(name(uid), append(data, '\n'), mode, true); err != nil || owned ||
		int64(os.Geteuid()) == int64(uid) {
		return err
	}
	return dir.Give(name(uid), uint32(uid)) // root returns it
}

func (n Notes) list(files *state.Files) (list []attachmentNote, warnings []string) {
	dir, owned, err := n.open(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []string{fmt.Sprintf("%s are ignored: %v", what, err)}
	}
	defer dir.Close()
	for _, uid := range users(files) {
		own, err := read(dir, uid, owned)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && len(warnings) < maxWarnings {
			warnings = append(warnings, fmt.Sprintf("%s of uid %d are ignored: %v", what, uid, err))
		}
		for _, x := range own {
			if x.attachment(files) != nil {
				list = append(list, x)
			}
		}
	}
	return list, warnings
}

// open opens or creates the notes' folder, following no links. owned: only root writes there.
func (n Notes) open(write bool) (dir *folder.Folder, owned bool, err error) {
	path := ""
	if n.Owned != nil {
		if path, err = n.Owned(); err != nil {
			return nil, false, err
		}
	}
	open, at := folder.Open, n.Dir
	if owned = path != ""; owned {
		open, at = folder.OpenExisting, path
	}
	parent, err := open(at)
	if err != nil {
		return nil, owned, err
	}
	defer parent.Close()
	switch {
	case write && owned:
		dir, err = parent.PrivateSub(folderName, 0o755)
	case write:
		dir, err = parent.SharedSub(folderName)
	default:
		if dir, err = parent.Sub(folderName); err == nil && owned {
			err = dir.CheckPrivate()
		}
	}
	dir, err = dir.OrClose(err)
	return dir, owned, err
}

func name(uid snapshot.UID) string { return fmt.Sprintf("%d.json", uid) }

// read returns a user's notes. The file must be that user's, unless owned.
func read(dir *folder.Folder, uid snapshot.UID, owned bool) ([]attachmentNote, error) {
	data, st, err := dir.Read(name(uid), maxBytes)
	if err != nil {
		return nil, err
	}
	if !owned && snapshot.UID(st.Uid) != uid {
		return nil, fmt.Errorf("%s belongs to uid %d: it was not read", dir.Join(name(uid)), st.Uid)
	}
	list, err := decode(data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", dir.Join(name(uid)), err)
	case len(list) > maxNotes:
		return nil, fmt.Errorf("%s: %d notes are more than the maximum of %d", dir.Join(name(uid)), len(list), maxNotes)
	}
	for i := range list {
		list[i].UID = uid
	}
	return list, nil
}

func decode(data []byte) ([]attachmentNote, error) {
	var list []attachmentNote
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%w: %w", snapshot.ErrInvalid, err)
	}
	for i := range list {
		n := &list[i]
		err := cmp.Or(snapshot.CheckName("the environment id", string(n.EID)), snapshot.CheckInstances(n.Instances))
		if err == nil && n.Attached.IsZero() {
			err = fmt.Errorf("%w: an attachment without a date", snapshot.ErrInvalid)
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

func users(files *state.Files) []snapshot.UID {
	seen := make(map[snapshot.EnvID]bool)
	for i := range files.Devices {
		for _, a := range files.Devices[i].Attachments {
			seen[a.EID] = true
		}
	}
	var uids []snapshot.UID
	for i := range files.Environments {
		if e := &files.Environments[i]; seen[e.EID] && !e.OwnerMismatch {
			uids = append(uids, e.UID)
		}
	}
	slices.Sort(uids)
	uids = slices.Compact(uids)
	return uids[:min(len(uids), maxUsers)]
}

// device is a note's, which may have another index now.
func (n *attachmentNote) device(files *state.Files) *snapshot.Device {
	for i := range files.Devices {
		if d := &files.Devices[i]; n.GPU != "" && d.UUID == n.GPU {
			return d
		}
	}
	d := files.Device(n.Index)
	if d != nil && n.GPU != "" && d.UUID != "" { // that index is another GPU now
		return nil
	}
	return d
}

func (n *attachmentNote) attachment(files *state.Files) *snapshot.Attachment {
	env, device := files.Environment(n.EID), n.device(files)
	if env == nil || device == nil || env.OwnerMismatch || env.UID != n.UID {
		return nil
	}
	found := device.Attachment(n.EID)
	if found == nil || found.Time != n.Attached {
		return nil
	}
	return found
}
