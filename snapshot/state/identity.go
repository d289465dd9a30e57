package state

import (
	"encoding/json"
	"maps"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// identityFile holds what envs.json has no room for: which process a PID was
// when it was registered. Without it a PID is whatever process has that number
// now, as in 1.4.3.
//
// It says something only about the very envs.json that we wrote. Once 1.4.3 has
// written that file, a PID in it may have been registered by 1.4.3 for another
// process, and to take that for dead would end the environment of someone who
// did nothing wrong; so then all identities are taken again. The file is as
// writable as envs.json is, and gives nobody a power that this one does not.
const identityFile = "genv.identities.json"

// maxIdentityFile is in bytes; a larger file is ignored.
const maxIdentityFile = 4 << 20

// stamp tells one version of a file from another: writing in place changes its
// time, and replacing it changes its inode.
type stamp struct {
	Inode   uint64 `json:"inode"`
	Size    int64  `json:"size"`
	Changed int64  `json:"mtime_ns"`
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{Inode: st.Ino, Size: st.Size, Changed: st.Mtim.Nano()}
}

// identities is the content of the file, and what was made of it.
type identities struct {
	Envs      stamp                               `json:"envs_json"`
	BootID    string                              `json:"boot_id"`
	Processes map[snapshot.PID]snapshot.StartTime `json:"start_times"`

	rebooted bool // since they were written
}

// gone says whether the process that was registered is gone, given what its
// PID is now.
func (k *identities) gone(pid snapshot.PID, now ProcessStatus) bool {
	if now.Liveness == Gone {
		return true
	}
	start, recorded := k.Processes[pid]
	if !recorded {
		return false
	}
	return k.rebooted || (start != 0 && now.Start != 0 && start != now.Start)
}

// recall reads the identities that hold for an envs.json. To lose them is
// harmless, so whatever is wrong with the file, the answer is that there are
// none.
func (s *Store) recall(dir *folder, envs stamp) identities {
	data, st, err := dir.read(identityFile)
	if err != nil || st.Size > maxIdentityFile {
		return identities{}
	}
	var known identities
	if json.Unmarshal(data, &known) != nil || known.Envs != envs {
		return identities{}
	}
	boot := s.machine.BootID()
	known.rebooted = boot != "" && known.BootID != "" && boot != known.BootID
	return known
}

// remember writes down which processes the state files mean, for the envs.json that
// stands now. It is not synced, and its errors are nobody's business: without
// it the state files are as good as those of 1.4.3.
func (s *Store) remember(dir *folder, b *Files, known *identities, process func(snapshot.PID) ProcessStatus) {
	var st unix.Stat_t
	if unix.Fstatat(dir.fd, envsFile, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return
	}
	next := identities{Envs: stampOf(&st), BootID: s.machine.BootID(), Processes: map[snapshot.PID]snapshot.StartTime{}}
	for i := range b.Environments {
		for _, pid := range b.Environments[i].PIDs {
			start := known.Processes[pid]
			if start == 0 {
				start = process(pid).Start
			}
			next.Processes[pid] = start
		}
	}
	if next.same(known) {
		return
	}
	data, err := json.Marshal(next)
	if err != nil || dir.remove(identityFile+tempSuffix) != nil {
		return
	}
	if dir.create(identityFile+tempSuffix, data, sharedMode, false) == nil {
		_ = unix.Renameat(dir.fd, identityFile+tempSuffix, dir.fd, identityFile)
	}
}

func (k *identities) same(o *identities) bool {
	return k.Envs == o.Envs && k.BootID == o.BootID && maps.Equal(k.Processes, o.Processes)
}

// forget drops the identities of processes that are not in the state files: when such
// a PID comes back, it is another process.
func (k *identities) forget(b *Files) {
	registered := make(map[snapshot.PID]bool)
	for i := range b.Environments {
		for _, pid := range b.Environments[i].PIDs {
			registered[pid] = true
		}
	}
	maps.DeleteFunc(k.Processes, func(pid snapshot.PID, _ snapshot.StartTime) bool { return !registered[pid] })
}
