// Package extension reads and writes the requests of users to keep their attachments for
// longer (`genv extend`): a file for each uid, in a folder to which every user may write.
// It decides nothing: what is granted is for package enforce.
//
//	requests := extension.Requests{Dir: "/var/tmp/genv"}
//	err := requests.Add(uid, list)           // as the user, with the lock of the state files
//	list, warnings := requests.Read(files)   // as root
package extension

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Requests are those of all users of a host. Dir is its state folder.
type Requests struct {
	Dir string
	// Owned is the folder of the state files if they belong to root, or empty: then root's
	// genv writes the requests there, of all users. It may be nil.
	Owned func() string
}

// The requests are in a folder of their own, which genv 1.4.3 doesn't look at. Its files
// can be read by all, and are written by their users alone.
const (
	subfolder = "extend"
	mode      = 0o644
)

// What a user may have, and of how many users files are opened: anybody may register
// environments for any uid in the state files.
const (
	maxBytes    = 16 << 10
	maxRequests = 64
	maxUsers    = 2048
	maxWarnings = 20
)

// Add replaces a user's requests about the same attachments, and drops those about
// attachments that files doesn't have any more. One without an ID gets
// a random one. The caller is that user, and holds the lock of the state files.
func (r Requests) Add(files *state.Files, uid snapshot.UID, list []snapshot.Extension) error {
	dir, owned, err := r.open(true)
	if err != nil {
		return fmt.Errorf("the requests: %w", err)
	}
	defer dir.Close()
	before, _ := read(dir, uid, owned) // what can't be read is replaced
	all := slices.DeleteFunc(before, func(old snapshot.Extension) bool {
		same := func(x snapshot.Extension) bool { return x.EID == old.EID && x.Index == old.Index }
		return !present(files, &old) || slices.ContainsFunc(list, same)
	})
	for _, x := range list {
		x.ID = cmp.Or(x.ID, rand.Text()[:16])
		all = append(all, x)
	}
	if len(all) > maxRequests {
		return fmt.Errorf("%d requests are more than the maximum of %d: name the devices with --index", len(all), maxRequests)
	}
	data, err := snapshot.EncodeExtensions(all)
	if err != nil {
		return err
	}
	if err := dir.Put(name(uid), append(data, '\n'), mode, true); err != nil || owned || int64(os.Geteuid()) == int64(uid) {
		return err
	}
	return dir.Give(name(uid), uint32(uid)) // root gives them back
}

// Move copies the requests about attachments that are there to another folder, as that of
// files which are taken over by root, or given back. It needs root and the lock.
func (r Requests) Move(files *state.Files, to Requests) error {
	list, _ := r.Read(*files)
	for len(list) > 0 {
		uid := list[0].UID
		own, others := []snapshot.Extension{}, []snapshot.Extension{}
		for _, x := range list {
			if x.UID == uid {
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

// Read returns the requests about attachments that are there, of the users of their
// environments. Only the files of such users are looked at, so that other files cost
// nothing; what is wrong with them is a warning. The list is never nil.
func (r Requests) Read(files state.Files) (list []snapshot.Extension, warnings []string) {
	list = []snapshot.Extension{}
	dir, owned, err := r.open(false)
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil
	}
	if err != nil {
		return list, []string{fmt.Sprintf("the requests of genv extend are ignored: %v", err)}
	}
	defer dir.Close()
	for _, uid := range users(&files) {
		own, err := read(dir, uid, owned)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && len(warnings) < maxWarnings {
			warnings = append(warnings, fmt.Sprintf("the requests of uid %d are ignored: %v", uid, err))
		}
		for i := range own {
			if present(&files, &own[i]) {
				list = append(list, own[i])
			}
		}
	}
	return list, warnings
}

// open opens the folder of the requests, following no link, and makes it if it is to be
// written. owned says that root alone writes there.
func (r Requests) open(write bool) (dir *folder.Folder, owned bool, err error) {
	parent, sub := (*folder.Folder)(nil), (*folder.Folder).Sub
	if path := r.owned(); path != "" {
		parent, err = folder.OpenExisting(path)
		owned = true
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
	dir, err = sub(parent, subfolder)
	if err == nil && owned {
		err = dir.CheckPrivate()
	}
	if err != nil {
		dir.Close()
		return nil, owned, err
	}
	return dir, owned, nil
}

func (r Requests) owned() string {
	if r.Owned == nil {
		return ""
	}
	return r.Owned()
}

func name(uid snapshot.UID) string { return fmt.Sprintf("%d.json", uid) }

// read returns what a user asks for. The kernel says who owns the file: it must be the
// user after whom it is named, unless root alone writes there.
func read(dir *folder.Folder, uid snapshot.UID, owned bool) ([]snapshot.Extension, error) {
	data, st, err := dir.Read(name(uid), maxBytes)
	if err != nil {
		return nil, err
	}
	if !owned && snapshot.UID(st.Uid) != uid {
		return nil, fmt.Errorf("%s belongs to uid %d: it was not read", dir.Join(name(uid)), st.Uid)
	}
	list, err := snapshot.DecodeExtensions(data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", dir.Join(name(uid)), err)
	case len(list) > maxRequests:
		return nil, fmt.Errorf("%s: %d requests are more than the maximum of %d", dir.Join(name(uid)), len(list), maxRequests)
	}
	for i := range list {
		list[i].UID = uid // whatever the file says
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

// present says whether a request is about an attachment that is there.
func present(files *state.Files, x *snapshot.Extension) bool {
	env, device := files.Environment(x.EID), files.Device(x.Index)
	if env == nil || device == nil {
		return false
	}
	a := device.Attachment(x.EID)
	return a != nil && x.Extends(env, x.Index, a.Time)
}
