package disk

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// startsFile holds the start times of the registered processes, for which envs.json
// has no room. Without it, a PID means whatever process has it now, as in 1.4.3.
//
// It is valid only for the envs.json that genv wrote together with it. If 1.4.3 has
// written envs.json since, a PID in it may be registered for another process, which
// must not be taken for a dead one; then all start times are read again. Every user
// may write the file, as they may write envs.json, so it gives them no new power.
const startsFile = "genv.identities.json"

// maxStartsFile is in bytes; a larger file is ignored.
const maxStartsFile = 4 << 20

// stamp distinguishes versions of a file: writing in place changes its time, and
// replacing it changes its inode.
type stamp struct {
	Inode   uint64 `json:"inode"`
	Size    int64  `json:"size"`
	Changed int64  `json:"mtime_ns"`
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{Inode: st.Ino, Size: st.Size, Changed: st.Mtim.Nano()}
}

// starts is the content of the file, and what follows from it.
type starts struct {
	Envs      stamp                               `json:"envs_json"`
	BootID    string                              `json:"boot_id"`
	Processes map[snapshot.PID]snapshot.StartTime `json:"start_times"`
	// Answers are those of earlier looks. They hold whoever has written envs.json since.
	Answers []snapshot.Answer `json:"answers,omitempty"`

	rebooted bool // since it was written
}

// ended says whether the registered process has ended, given what its PID is now.
func (k *starts) ended(pid snapshot.PID, now system.ProcessStatus) bool {
	if now.Liveness == system.Gone {
		return true
	}
	start, recorded := k.Processes[pid]
	if !recorded {
		return false
	}
	return k.rebooted || (start != 0 && now.Start != 0 && start != now.Start)
}

// readStarts reads the start times that are valid for the loaded envs.json. If
// anything is wrong with the file there are none, which is harmless.
func (t *transaction) readStarts() {
	var known starts
	if !t.dir.ReadJSON(startsFile, maxStartsFile, &known) {
		return
	}
	boot := t.System.BootID()
	known.rebooted = boot != "" && known.BootID != "" && boot != known.BootID
	if !known.rebooted {
		t.files.Answers = slices.Clone(known.Answers)
	}
	if known.Envs == t.stamp {
		t.known = known
	}
}

// writeStarts writes the start times for the envs.json that is on disk now. It is
// not synced, and errors are ignored: the file is optional.
func (t *transaction) writeStarts() {
	st, err := t.dir.Stat(state.Envs.String())
	if err != nil {
		return
	}
	next := starts{Envs: stampOf(&st), BootID: t.System.BootID(), Processes: map[snapshot.PID]snapshot.StartTime{}}
	for i := range t.files.Environments {
		for _, pid := range t.files.Environments[i].PIDs {
			start := t.known.Processes[pid]
			if start == 0 {
				start = t.process(pid).Start
			}
			next.Processes[pid] = start
		}
	}
	for _, a := range t.files.Answers {
		a.Start = cmp.Or(a.Start, t.process(a.PID).Start)
		next.Answers = append(next.Answers, a)
	}
	if next.Envs == t.known.Envs && next.BootID == t.known.BootID && maps.Equal(next.Processes, t.known.Processes) &&
		slices.Equal(next.Answers, t.known.Answers) {
		return
	}
	_ = t.dir.PutJSON(startsFile, next, t.dir.mode(), false)
}

// forgetUnregistered drops the start times of processes that are no longer
// registered: if such a PID is registered again, it is another process.
func (t *transaction) forgetUnregistered() {
	registered := make(map[snapshot.PID]bool)
	for i := range t.files.Environments {
		for _, pid := range t.files.Environments[i].PIDs {
			registered[pid] = true
		}
	}
	maps.DeleteFunc(t.known.Processes, func(pid snapshot.PID, _ snapshot.StartTime) bool { return !registered[pid] })
}

// forgetAnswers drops the answers about processes that have ended.
func (t *transaction) forgetAnswers() {
	t.files.Answers = slices.DeleteFunc(t.files.Answers, func(a snapshot.Answer) bool {
		now := t.process(a.PID)
		return now.Liveness == system.Gone || now.Start != 0 && now.Start != a.Start || snapshot.CheckName("eid", string(a.EID)) != nil
	})
}

// rememberWithin bounds the wait for the lock: the next look remembers what this one couldn't.
const rememberWithin = 200 * time.Millisecond

// Remember keeps what a look of root found out about processes, so that it holds when they don't show it any more.
func (s *Store) Remember(ctx context.Context, answers []snapshot.Answer) error {
	if os.Geteuid() != 0 || !s.MayWrite() {
		return nil
	}
	_, err := s.update(ctx, rememberWithin, func(f *state.Files) error {
		f.Remember(answers)
		return nil
	})
	return err
}
