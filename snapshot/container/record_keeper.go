package container

import (
	"os"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Keeper says which processes keep environments alive although they are not of the
// environment's user: the inits of containers, as recorded in a run folder. It reads the
// records again only when one was written or removed. Any number of goroutines may use it.
type Keeper struct {
	Run string

	mu      sync.Mutex
	changed time.Time // when the folder had changed last
	settled bool      // it was read so much later that no other change has the same time
	inits   map[registered]snapshot.StartTime
}

// tick is longer than the resolution of the times of files.
const tick = 100 * time.Millisecond

// registered is a container's init in an environment.
type registered struct {
	eid snapshot.EnvID
	pid snapshot.PID
}

// Keeps is for disk.Config. A process that started at another time than the one that was
// recorded only has its PID. With 0 it is unknown when the process started, and the PID
// alone counts.
func (k *Keeper) Keeps(eid snapshot.EnvID, pid snapshot.PID, start snapshot.StartTime) bool {
	info, err := os.Stat(RecordsDir(k.Run))
	if err != nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.settled || !info.ModTime().Equal(k.changed) {
		k.changed, k.settled = info.ModTime(), time.Since(info.ModTime()) > tick
		k.inits = initsIn(k.Run)
	}
	recorded, known := k.inits[registered{eid, pid}]
	return known && (start == 0 || start == recorded)
}

func initsIn(run string) map[registered]snapshot.StartTime {
	inits := map[registered]snapshot.StartTime{}
	ids, _ := ListRecords(run) // what can't be listed keeps nothing
	for _, id := range ids {
		if r, err := ReadRecord(run, id); err == nil && r.PID != 0 {
			inits[registered{r.EID, r.PID}] = r.Start
		}
	}
	return inits
}

// PruneRecords removes the records of containers of which the init has ended, as after a SIGKILL
// of the runtime. start is the start time of a process, 0 for none; ok is false where that
// is unknown. Only root calls it.
func PruneRecords(run string, start func(snapshot.PID) (_ snapshot.StartTime, ok bool)) error {
	ids, err := ListRecords(run)
	for _, id := range ids {
		r, readErr := ReadRecord(run, id)
		if readErr != nil || r.PID == 0 {
			continue
		}
		if now, ok := start(r.PID); !ok || now == r.Start {
			continue
		}
		if removeErr := RemoveSameRecord(run, r); err == nil {
			err = removeErr
		}
	}
	return err
}
