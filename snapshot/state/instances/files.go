package instances

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

const (
	// folderName is that of the folder with the notes, which genv 1.4.3 doesn't look at.
	folderName = "mig"
	// what the notes are, for messages.
	what = "the MIG instances of attachments"
	// mode: the files can be read by all, and are written by their users alone.
	mode = 0o644
)

// What a user may have, and of how many users files are opened: anybody may register any uid.
const (
	maxBytes    = 16 << 10
	maxNotes    = 64
	maxUsers    = 2048
	maxWarnings = 20
)

// add replaces a user's notes about the same attachments, and drops those about none. The caller is that user or root,
// and holds the lock.
func (n Notes) add(files *state.Files, uid snapshot.UID, list []attachmentNote) error {
	dir, owned, err := n.open(true)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer dir.Close()
	before, _ := read(dir, uid, owned) // what can't be read is replaced
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
	return dir.Give(name(uid), uint32(uid)) // root gives them back
}

// list are the notes about attachments that are there, by the files of their users alone; what is wrong with these is a
// warning.
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

// open opens the folder of the notes, following no link, or makes it. owned says that root alone writes there.
func (n Notes) open(write bool) (dir *folder.Folder, owned bool, err error) {
	path := ""
	if n.Owned != nil {
		if path, err = n.Owned(); err != nil {
			return nil, false, err
		}
	}
	open, at, sub := folder.Open, n.Dir, (*folder.Folder).Sub
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
		sub = (*folder.Folder).PrivateSub
	case write:
		sub = (*folder.Folder).SharedSub
	}
	dir, err = sub(parent, folderName)
	if err == nil && owned && !write {
		err = dir.CheckPrivate()
	}
	if err != nil {
		dir.Close()
		return nil, owned, err
	}
	return dir, owned, nil
}

func name(uid snapshot.UID) string { return fmt.Sprintf("%d.json", uid) }

// read is what a user noted: the kernel must say that the file is that user's, unless root alone writes there.
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

// users are those who have attachments, by their environments, in the order of the uids.
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

// device is the one that a note is about, which may have got another index since.
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

// attachment is the one that a note is about, of an environment of its user, and made at its time; nil for none.
func (n *attachmentNote) attachment(files *state.Files) *snapshot.Attachment {
	env, device := files.Environment(n.EID), n.device(files)
	if env == nil || device == nil || env.OwnerMismatch || env.UID != n.UID {
		return nil
	}
	found := device.Attachment(n.EID)
	if found == nil || found.Time != n.at {
		return nil
	}
	return found
}
