package system

import (
	"cmp"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Subordinates knows which users own the subordinate uids (subuid(5)) of this machine: such a
// user can run processes with thousands of uids. The zero value reads /etc; it is safe
// for concurrent use, and never waits for a directory service.
type Subordinates struct {
	Etc string           // the folder of subuid and passwd; empty for /etc
	Now func() time.Time // nil is time.Now

	mu       sync.Mutex
	looked   time.Time      // when the files were last checked for changes
	versions [2]fileVersion // of what was read
	ranges   []subordinateRange
	accounts map[snapshot.UID]bool
}

// subordinateRange are the uids from First to Last, which belong to one user.
type subordinateRange struct {
	First, Last, Owner snapshot.UID
}

// Uids from 2^31 on are what FreeIPA hands out as subordinate uids, in blocks of this size.
// Nothing else uses uids as large.
const (
	firstOfDirectory = 1 << 31
	directoryBlock   = 1 << 16
)

// Owner is the user for whom a uid counts: the uid itself unless it is a subordinate one, else
// its owner. The first subordinate uid represents an owner that /etc/passwd lacks.
func (s *Subordinates) Owner(uid snapshot.UID) snapshot.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read()
	if s.accounts[uid] {
		return uid
	}
	i, found := slices.BinarySearchFunc(s.ranges, uid, func(r subordinateRange, uid snapshot.UID) int { return cmp.Compare(r.First, uid) })
	if !found {
		i--
	}
	switch {
	case i >= 0 && uid <= s.ranges[i].Last:
		return s.ranges[i].Owner
	case uid >= firstOfDirectory:
		return uid - uid%directoryBlock
	}
	return uid
}

// maxSubuids bounds the files, in bytes.
const maxSubuids = 4 << 20

// read reads the files again if they have changed, and looks for that at most once a second. A
// file that others than root may have written counts as empty.
func (s *Subordinates) read() {
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	if at := now(); at.Sub(s.looked).Abs() > time.Second {
		s.looked = at
		s.readChanged(cmp.Or(s.Etc, "/etc"))
	}
}

func (s *Subordinates) readChanged(etc string) {
	versions := [2]fileVersion{versionOf(filepath.Join(etc, "subuid")), versionOf(filepath.Join(etc, "passwd"))}
	if versions == s.versions {
		return
	}
	s.versions = versions
	subuid, _ := folder.ReadTrusted(etc, "subuid", maxSubuids)
	passwd, _ := folder.ReadTrusted(etc, "passwd", maxSubuids)
	names := map[string]snapshot.UID{}
	s.accounts = map[snapshot.UID]bool{}
	for line := range strings.Lines(string(passwd)) {
		if fields := strings.Split(line, ":"); len(fields) > 2 {
			if uid, err := strconv.ParseUint(fields[2], 10, 32); err == nil {
				names[fields[0]], s.accounts[snapshot.UID(uid)] = snapshot.UID(uid), true
			}
		}
	}
	s.ranges = parseSubordinates(string(subuid), names)
}

// parseSubordinates reads subuid(5), and returns ranges that don't overlap, in ascending
// order. names are the accounts. Ranges of root are left out: root chooses for whom they are.
func parseSubordinates(text string, names map[string]snapshot.UID) []subordinateRange {
	var all []subordinateRange
	owners := map[string]snapshot.UID{}
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 3 {
			continue
		}
		first, err := strconv.ParseUint(fields[1], 10, 32)
		count, countErr := strconv.ParseUint(fields[2], 10, 32)
		if err != nil || countErr != nil || count == 0 {
			continue
		}
		owner, known := ownerNamed(fields[0], names)
		if !known {
			if _, seen := owners[fields[0]]; !seen {
				owners[fields[0]] = snapshot.UID(first)
			}
			owner = owners[fields[0]]
		}
		if !known || owner != 0 {
			all = append(all, subordinateRange{snapshot.UID(first), snapshot.UID(min(first+count-1, math.MaxUint32)), owner})
		}
	}
	slices.SortStableFunc(all, func(a, b subordinateRange) int { return cmp.Compare(a.First, b.First) })
	apart := all[:0]
	for _, r := range all {
		if n := len(apart); n > 0 && r.First <= apart[n-1].Last {
			if r.Last <= apart[n-1].Last {
				continue
			}
			r.First = apart[n-1].Last + 1
		}
		apart = append(apart, r)
	}
	return apart
}

// ownerNamed is the user whom a line names by the uid or by the name.
func ownerNamed(text string, names map[string]snapshot.UID) (uid snapshot.UID, known bool) {
	if id, err := strconv.ParseUint(text, 10, 32); err == nil {
		return snapshot.UID(id), true
	}
	uid, known = names[text]
	return uid, known
}

// fileVersion changes when a file changes. It is zero for a missing file.
type fileVersion struct {
	inode          uint64
	size           int64
	written, since unix.Timespec
}

func versionOf(path string) fileVersion {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return fileVersion{}
	}
	return fileVersion{st.Ino, st.Size, st.Mtim, st.Ctim}
}
