package proc

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// slowReads are the users of processes of which a stat or link is still being read: some kernels let readers wait
// during execve(2), which FUSE can hold. These reads end with this process, and cost too little for a helper.
type slowReads struct {
	mu     sync.Mutex
	userOf map[snapshot.PID]snapshot.UID
}

// statWithin bounds such a reading. Of one user maxSlow processes may be slow, each for less time than the last.
const (
	statWithin = 150 * time.Millisecond
	maxSlow    = 4
	maxTries   = 8 // of waiting while no thread waits in the kernel
)

// soon reads a file of a process that is small, but may wait.
func soon[T any](fs FS, pid snapshot.PID, read func() (T, error)) (T, error) {
	if fs.Reader == nil {
		return read()
	}
	var none T
	slow := &fs.Reader.slow
	within := slow.within(fs, pid)
	if within == 0 {
		return none, ErrStalled
	}
	var value T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, err = read()
	}()
	runtime.Gosched() // nearly always it is read then
	for try := 1; !isDone(done, within); try++ {
		if try < maxTries && threadsIn('D', "/proc/self/task") <= slow.count() { // this machine is busy
			continue
		}
		slow.add(fs, pid)
		go func() {
			<-done
			slow.remove(pid)
		}()
		return none, ErrStalled
	}
	return value, err
}

func isDone(done <-chan struct{}, within time.Duration) bool {
	select {
	case <-done:
		return true
	default:
	}
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
		return false
	}
}

// within is how long a reading of a process may take; 0 not to begin it.
func (s *slowReads) within(fs FS, pid snapshot.PID) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.userOf) == 0 {
		return statWithin
	}
	if _, slow := s.userOf[pid]; slow {
		return 0
	}
	uid, err := fs.payer(pid)
	others := time.Duration(0)
	for _, user := range s.userOf {
		if err == nil && user == uid {
			others++
		}
	}
	if others >= maxSlow {
		return 0
	}
	return statWithin / (others + 1)
}

func (s *slowReads) add(fs FS, pid snapshot.PID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.userOf == nil {
		s.userOf = map[snapshot.PID]snapshot.UID{}
	}
	s.userOf[pid], _ = fs.payer(pid) // 0: it has ended
}

func (s *slowReads) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.userOf)
}

func (s *slowReads) remove(pid snapshot.PID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.userOf, pid)
}

// threadsIn is how many threads are in a state: R is running or waiting for its turn, D is waiting in the kernel
// without being interruptible, as for memory that is held.
func threadsIn(state byte, tasks string) (count int) {
	threads, _ := filepath.Glob(tasks + "/*/stat")
	for _, thread := range threads {
		data, err := os.ReadFile(thread)
		if stat, bad := ParseStat(data); err == nil && bad == nil && stat.State == state {
			count++
		}
	}
	return count
}
