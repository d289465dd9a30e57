package files

import (
	"strconv"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// maxOwn is for how many users there are parts of their own.
const maxOwn = 4096

// addOwn adds to each user's part what is the user's own. What can't be written now is written
// with what comes next: the sums of all have it.
func (s *Store) addOwn(all sums) {
	if s.options.UID == nil {
		return
	}
	for key := range all {
		if key.Kind != usage.ByUser || key.Name == "" {
			continue
		}
		uid, ok := s.options.UID(key.Name)
		if !ok || s.waiting[uid] == nil && len(s.waiting) >= maxOwn {
			continue
		}
		if s.waiting[uid] == nil {
			s.waiting[uid] = make(sums)
		}
		one := all[key]
		s.waiting[uid].add(key, &one)
		key.Kind, key.Name = usage.OfAll, ""
		s.waiting[uid].add(key, &one)
	}
	for uid, own := range s.waiting {
		if s.writeOwn(uid, own) == nil {
			delete(s.waiting, uid)
		}
	}
}

// writeOwn writes a user's part, which the user may read.
func (s *Store) writeOwn(uid uint32, own sums) error {
	dir, err := s.ownFolder(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return err
	}
	defer dir.Close()
	return s.write(dir, own, nil, uid)
}

// ownFolder opens the folder of a user's part, which users may enter and not list.
func (s *Store) ownFolder(name string) (*folder.Folder, error) {
	dir, err := s.top.PrivateSub(name)
	if err != nil {
		return nil, err
	}
	if err := dir.Chmod(0o711); err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}
