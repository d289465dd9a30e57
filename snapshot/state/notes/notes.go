// Package notes keeps what users note about their own attachments, for which the files of
// genv 1.4.3 have no room: a file for each uid, in a folder to which every user may write,
// and which 1.4.3 doesn't look at.
//
//	folder := notes.Folder[T]{Dir: "/var/tmp/genv", Name: "mig", …}
//	err := folder.Add(files, uid, list)        // as the user, with the lock of the state files
//	list, warnings := folder.Read(files)       // notes about attachments that are there
//
// It decides nothing: what a note is worth is for its caller.
package notes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Folder is the notes of one kind of all users of a host.
type Folder[T any] struct {
	Dir string // the state folder of the host
	// Owned is the folder of the state files if they belong to root, or empty: then root's
	// genv writes the notes there, of all users. Its error says that this is not known. It may
	// be nil.
	Owned func() (string, error)
	Name  string // of the folder with the notes
	What  string // the notes are, for messages, such as "the MIG instances of attachments"

	Encode func([]T) ([]byte, error)
	Decode func([]byte) ([]T, error) // checks every field
	// About is the attachment that a note is about.
	About func(*T) Attachment
	// Owner sets the user of a note, whatever it says itself.
	Owner func(*T, snapshot.UID)
}

// Attachment names an attachment of an environment of a user. One that is made at another
// time is another one.
type Attachment struct {
	UID   snapshot.UID
	EID   snapshot.EnvID
	Index snapshot.DeviceIndex
	At    snapshot.Date
}

// mode: the files can be read by all, and are written by their users alone.
const mode = 0o644

// What a user may have, and of how many users files are opened: anybody may register
// environments for any uid in the state files.
const (
	maxBytes    = 16 << 10
	maxNotes    = 64
	maxUsers    = 2048
	maxWarnings = 20
)

// Add replaces a user's notes about the same attachments, and drops those about attachments
// that files doesn't have any more. The caller is that user or root, and holds the lock of
// the state files.
func (r Folder[T]) Add(files *state.Files, uid snapshot.UID, list []T) error {
	dir, owned, err := r.open(true)
	if err != nil {
		return fmt.Errorf("%s: %w", r.What, err)
	}
	defer dir.Close()
	before, _ := r.read(dir, uid, owned) // what can't be read is replaced
	all := slices.DeleteFunc(before, func(old T) bool {
		about := r.About(&old)
		same := func(x T) bool { return r.About(&x).EID == about.EID && r.About(&x).Index == about.Index }
		return !about.in(files) || slices.ContainsFunc(list, same)
	})
	all = append(all, list...)
	if len(all) > maxNotes {
		return fmt.Errorf("%s: %d are more than the maximum of %d: name the devices with --index", r.What, len(all), maxNotes)
	}
	data, err := r.Encode(all)
	if err != nil {
		return err
	}
	if err := dir.Put(name(uid), append(data, '\n'), mode, true); err != nil || owned || int64(os.Geteuid()) == int64(uid) {
		return err
	}
	return dir.Give(name(uid), uint32(uid)) // root gives them back
}

// Move copies the notes about attachments that are there to another folder, as that of
// files which are taken over by root, or given back. It needs root and the lock.
func (r Folder[T]) Move(files *state.Files, to Folder[T]) error {
	list, _ := r.Read(*files)
	for len(list) > 0 {
		uid := r.About(&list[0]).UID
		var own, others []T
		for _, x := range list {
			if r.About(&x).UID == uid {
				own = append(own, x)
			} else {
				others = append(others, x)
			}
		}
		if err := to.Add(files, uid, own); err != nil {
			return err
		}
		list = others
	}
	return nil
}

// Read returns the notes about attachments that are there, of the users of their
// environments. Only the files of such users are looked at, so that other files cost
// nothing; what is wrong with them is a warning. The list is never nil.
func (r Folder[T]) Read(files state.Files) (list []T, warnings []string) {
	list = []T{}
	dir, owned, err := r.open(false)
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil
	}
	if err != nil {
		return list, []string{fmt.Sprintf("%s are ignored: %v", r.What, err)}
	}
	defer dir.Close()
	for _, uid := range users(&files) {
		own, err := r.read(dir, uid, owned)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && len(warnings) < maxWarnings {
			warnings = append(warnings, fmt.Sprintf("%s of uid %d are ignored: %v", r.What, uid, err))
		}
		for i := range own {
			if r.About(&own[i]).in(&files) {
				list = append(list, own[i])
			}
		}
	}
	return list, warnings
}

// open opens the folder of the notes, following no link, and makes it if it is to be
// written. owned says that root alone writes there.
func (r Folder[T]) open(write bool) (dir *folder.Folder, owned bool, err error) {
	parent, sub := (*folder.Folder)(nil), (*folder.Folder).Sub
	path, err := r.owned()
	if err != nil {
		return nil, false, err
	}
	if owned = path != ""; owned {
		parent, err = folder.OpenExisting(path)
	} else {
		parent, err = folder.Open(r.Dir)
	}
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
	dir, err = sub(parent, r.Name)
	if err == nil && owned {
		err = dir.CheckPrivate()
	}
	if err != nil {
		dir.Close()
		return nil, owned, err
	}
	return dir, owned, nil
}

func (r Folder[T]) owned() (string, error) {
	if r.Owned == nil {
		return "", nil
	}
	return r.Owned()
}

func name(uid snapshot.UID) string { return fmt.Sprintf("%d.json", uid) }

// read returns what a user noted. The kernel says who owns the file: it must be the user
// after whom it is named, unless root alone writes there.
func (r Folder[T]) read(dir *folder.Folder, uid snapshot.UID, owned bool) ([]T, error) {
	data, st, err := dir.Read(name(uid), maxBytes)
	if err != nil {
		return nil, err
	}
	if !owned && snapshot.UID(st.Uid) != uid {
		return nil, fmt.Errorf("%s belongs to uid %d: it was not read", dir.Join(name(uid)), st.Uid)
	}
	list, err := r.Decode(data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", dir.Join(name(uid)), err)
	case len(list) > maxNotes:
		return nil, fmt.Errorf("%s: %d notes are more than the maximum of %d", dir.Join(name(uid)), len(list), maxNotes)
	}
	for i := range list {
		r.Owner(&list[i], uid)
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

// in says whether the attachment is there, of an environment that is registered for its user.
func (a Attachment) in(files *state.Files) bool {
	env, device := files.Environment(a.EID), files.Device(a.Index)
	if env == nil || device == nil || env.OwnerMismatch || env.UID != a.UID {
		return false
	}
	found := device.Attachment(a.EID)
	return found != nil && found.Time == a.At
}
