package proc

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// slowReads has the users of processes whose stat or link blocks its reader: some kernels block during execve(2), which
// FUSE can hold. These files are too cheap for a helper.
type slowReads struct {
	mu     sync.Mutex
	userOf map[snapshot.PID]snapshot.UID
}

// statWithin limits such a read. At most maxSlow processes of a user may be slow, each for less time than the last.
const (
	statWithin = 150 * time.Millisecond
	maxSlow    = 4
	maxTries   = 8 // to wait while no further thread is blocked in the kernel
)

// soon reads a small file of a process that may block.
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
	runtime.Gosched() // after this it has nearly always been read
	for try := 1; !isDone(done, within); try++ {
		if try < maxTries && threadsIn('D', "/proc/self/task") <= slow.count() { // the machine is busy
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
	select {
	case <-done:
		return true
	case <-time.After(within):
		return false
	}
}

// within returns how long a read of a process may take; 0 for not to start it.
func (s *slowReads) within(fs FS, pid snapshot.PID) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.userOf) == 0 {
		return statWithin
	}
	if _, slow := s.userOf[pid]; slow {
		return 0
	}
	uid, err := fs.quotaUser(pid)
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
	s.userOf[pid], _ = fs.quotaUser(pid) // 0: it has ended
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

// threadsIn counts the threads in a state: R is running or runnable, D blocked in the kernel.
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

// Quota limits one account's reading in one look: its many or slow processes or files delay no one else.
type Quota struct {
	spent time.Duration
	files int // searched for device nodes
}

// Shares of an account's quota. Together with slow stats an account costs a look at most a second.
const (
	maxReadTime  = 500 * time.Millisecond // of a ReaderProcess
	maxStallTime = 700 * time.Millisecond // with what stalls it
	maxNodeTime  = 950 * time.Millisecond // with device nodes
	maxNodeFiles = 1 << 16
)

func (q *Quota) left(most time.Duration) time.Duration {
	if q == nil {
		return most
	}
	return max(0, most-q.spent)
}

func (q *Quota) spend() (done func()) {
	if q == nil {
		return func() {}
	}
	began := time.Now()
	return func() { q.spent += max(1, time.Since(began)) }
}

// QuotaKey shares a Quota: a user, or a container of root's, which may be any user's.
type QuotaKey struct {
	UID       snapshot.UID
	Container string // empty for none
}

// Quotas has the quotas of one look.
type Quotas map[QuotaKey]*Quota

// Of returns an account's Quota. This process's own user, unless it is root, has ten times as much.
func (q Quotas) Of(a QuotaKey) *Quota {
	if q[a] == nil {
		q[a] = &Quota{}
		if a.UID != 0 && int(a.UID) == os.Geteuid() {
			q[a].spent = -9 * maxReadTime
		}
	}
	return q[a]
}

// Stall says what holds the memory of a process, as far as the kernel shows it to root.
type Stall struct {
	FUSE    bool          // a thread changes its memory and waits for FUSE
	Network bool          // a thread waits for a network file system
	Mounter *snapshot.UID // who mounted all FUSE file systems of the process; nil for none or several
}

// Stall finds out what holds the memory of the process, which counts for owner (see OwnerOfUID). It is zero if unknown,
// or if the Quota is used up.
func (h *Handle) Stall(owner snapshot.UID, rootless bool) (s Stall) {
	if h.Quota.left(maxStallTime) == 0 {
		return s
	}
	defer h.Quota.spend()()
	for _, stack := range h.stacks() {
		changesMemory := hasAny(stack, "mmap", "munmap", "vma", "fault")
		s.FUSE = s.FUSE || changesMemory && hasAny(stack, "] fuse_")
		s.Network = s.Network || hasAny(stack, "] nfs", "] rpc_", "] ceph_", "] cifs_", "] smb2_", "] ll_", "] gpfs")
	}
	if s.FUSE {
		s.Mounter = h.mounter(owner, rootless)
	}
	return s
}

func hasAny(stack string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(stack, name) })
}

const (
	maxStacks     = 1024
	maxMountBytes = 256 << 10
)

func (h *Handle) stacks() []string {
	stacks, _ := soon(h.fs, h.PID, func() (stacks []string, err error) {
		threads, err := namesIn(h.dir, "task", maxStacks)
		for _, thread := range threads {
			if stack, err := readAt(h.dir, "task/"+thread+"/stack", smallLimit); err == nil {
				stacks = append(stacks, string(stack))
			}
		}
		return stacks, err
	})
	return stacks
}

// mounter is Stall.Mounter. A file system outside our namespace is the owner's if the process is rootless.
func (h *Handle) mounter(owner snapshot.UID, rootless bool) *snapshot.UID {
	read := func(dir int, name string) (map[string]snapshot.UID, error) {
		data, err := soon(h.fs, h.PID, func() ([]byte, error) { return readAt(dir, name, maxMountBytes) })
		if len(data) == maxMountBytes {
			err = errSpent
		}
		return fuseMounts(data), err
	}
	theirs, err := read(h.dir, "mountinfo")
	ours, oursErr := read(unix.AT_FDCWD, h.fs.root()+"/self/mountinfo")
	if err != nil || oursErr != nil || len(theirs) == 0 {
		return nil
	}
	for device := range theirs {
		uid, shared := ours[device]
		uid, _ = h.fs.Account(uid)
		if !shared && !rootless || shared && uid != owner {
			return nil
		}
	}
	return &owner
}

func fuseMounts(mountinfo []byte) map[string]snapshot.UID {
	mounts := map[string]snapshot.UID{}
	for m := range ParseMounts(string(mountinfo), " - fuse") {
		if kind, _, _ := strings.Cut(m.Kind, "."); kind != "fuse" && kind != "fuseblk" {
			continue
		}
		mounts[m.Device] = 0
		for option := range strings.SplitSeq(m.Options, ",") {
			if text, ok := strings.CutPrefix(option, "user_id="); ok {
				uid, _ := strconv.ParseUint(text, 10, 32) // the kernel writes it
				mounts[m.Device] = snapshot.UID(uid)
			}
		}
	}
	return mounts
}

// WaitsForFUSE says whether a thread waits for a FUSE server: signals don't end it before that answers or ends.
func (fs FS) WaitsForFUSE(pid snapshot.PID) bool {
	stacks, _ := with(fs, pid, func(h *Handle) ([]string, error) { return h.stacks(), nil })
	waits := func(stack string) bool { return hasAny(stack, "] fuse_", "] request_wait_answer") }
	return slices.ContainsFunc(stacks, waits)
}
