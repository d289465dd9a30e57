package proc

import (
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// subuidRange are the subordinate uids from First to Last of an owner, who is named by name or uid as in subuid(5).
type subuidRange struct {
	First, Last snapshot.UID
	Owner       string
}

// subuids are the ranges of a machine, and where its accounts are.
type subuids struct {
	etc         string
	looked      time.Time // when the files were last checked for changes
	stamp       string    // of the files that were read
	ranges      []subuidRange
	source      string   // what has the ranges in place of the file; empty for the file
	directories []string // the services of nsswitch.conf(5) that ask others for accounts
}

// maxSubuids bounds the files, in bytes.
const maxSubuids = 4 << 20

// read reads the files again if they have changed, and looks for that at most once a second. A
// file that others than root may have written counts as empty.
func (s *subuids) read(now time.Time) {
	if now.Sub(s.looked).Abs() <= time.Second {
		return
	}
	s.looked = now
	stamp := folder.Stamp(filepath.Join(s.etc, "subuid"), filepath.Join(s.etc, "nsswitch.conf"))
	if stamp == s.stamp {
		return
	}
	nsswitch, _ := folder.ReadTrusted(s.etc, "nsswitch.conf", maxSubuids)
	s.stamp, s.ranges, s.source = stamp, nil, ""
	s.directories = nss.Directories(string(nsswitch))
	if sources := nss.Services(string(nsswitch), "subid"); len(sources) > 0 && sources[0] != "files" {
		s.source = sources[0]
	} else {
		text, _ := folder.ReadTrusted(s.etc, "subuid", maxSubuids)
		s.ranges = parseSubuids(string(text))
	}
}

// owners have a uid as a subordinate one; first begins their first range with it, or is UnknownAccount.
func (s *subuids) owners(uid snapshot.UID) (owners []string, first snapshot.UID) {
	first = UnknownAccount
	for _, r := range s.ranges {
		if uid == 0 || uid < r.First || uid > r.Last || slices.Contains(owners, r.Owner) {
			continue
		}
		if owners = append(owners, r.Owner); len(owners) == 1 {
			first = r.First
		}
	}
	return owners, first
}

func parseSubuids(text string) (ranges []subuidRange) {
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 3 || fields[0] == "" {
			continue
		}
		first, err := strconv.ParseUint(fields[1], 10, 32)
		count, countErr := strconv.ParseUint(fields[2], 10, 32)
		if err == nil && countErr == nil && count > 0 {
			ranges = append(ranges, subuidRange{
				snapshot.UID(first), snapshot.UID(min(first+count-1, math.MaxUint32)),
				fields[0],
			})
		}
	}
	return ranges
}
