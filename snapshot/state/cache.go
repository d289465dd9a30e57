package state

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// Cache is a Store for somebody who reads the state files again and again: while the
// files are the ones that were read, and the processes in them live, Read
// answers without the lock and without the files' contents. It is safe for
// concurrent use.
type Cache struct {
	*Store

	mu   sync.Mutex
	last reading
}

// reading is what was read, and what it was read from.
type reading struct {
	valid     bool
	at        time.Time
	files     [2]mark
	processes map[snapshot.PID]ProcessStatus
	books     Files
}

// mark tells one version of a file from another. Its owner may set the time of
// a change as he likes; the time at which the kernel noted that, he may not.
type mark struct {
	device uint64
	noted  int64
	stamp
}

// NewCache returns a Cache of a store.
func NewCache(s *Store) *Cache { return &Cache{Store: s} }

// settled is how old a file must be for its times to say anything: one that is
// written twice within a tick of the file system's clock, to the same length,
// looks unchanged.
const settled = 2 * time.Second

// keptFor bounds how long anything that goes unnoticed here can last.
const keptFor = time.Minute

// Read is Store.Read. Who gets the state files owns them.
func (k *Cache) Read(ctx context.Context) (Files, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stands() {
		return k.last.copy(), nil
	}
	next := reading{at: time.Now()}
	books, err := k.readThen(ctx, func(dir *folder) { next.files, next.valid = k.marks(dir.path) })
	next.valid = next.valid && err == nil && len(books.Warnings) == 0 && next.settled(k.now())
	next.books = books
	next.processes = map[snapshot.PID]ProcessStatus{}
	for i := range books.Environments {
		e := &books.Environments[i]
		next.valid = next.valid && len(e.KernelIDs) == 0 // whether these live is not to be told by a PID
		for _, pid := range e.PIDs {
			next.processes[pid] = k.machine.Process(pid)
		}
	}
	k.last = next
	return k.last.copy(), err
}

// stands says whether what was read last is what would be read now.
func (k *Cache) stands() bool {
	if !k.last.valid || time.Since(k.last.at) > keptFor {
		return false
	}
	if files, ok := k.marks(k.dir); !ok || files != k.last.files {
		return false
	}
	for pid, was := range k.last.processes {
		if now := k.machine.Process(pid); !was.same(now) {
			return false
		}
	}
	return true
}

// same says whether two looks at a PID saw the same living process.
func (p ProcessStatus) same(o ProcessStatus) bool {
	return p.Liveness == Alive && o.Liveness == Alive && p.Start == o.Start &&
		p.Owner != nil && o.Owner != nil && *p.Owner == *o.Owner
}

// marks looks at the files by their names, following no link.
func (k *Cache) marks(dir string) (marks [2]mark, ok bool) {
	for i, name := range [...]string{envsFile, devicesFile} {
		var st unix.Stat_t
		if unix.Lstat(dir+"/"+name, &st) != nil {
			return marks, false
		}
		marks[i] = mark{device: st.Dev, noted: st.Ctim.Nano(), stamp: stampOf(&st)}
	}
	return marks, true
}

func (r *reading) settled(now time.Time) bool {
	for _, f := range r.files {
		if now.Sub(time.Unix(0, f.noted)) < settled {
			return false
		}
	}
	return true
}

// copy is the state files for a caller to keep: lists that anybody might change are
// the caller's own.
func (r *reading) copy() Files {
	b := r.books
	b.Environments = slices.Clone(b.Environments)
	b.Devices = slices.Clone(b.Devices)
	b.Warnings = slices.Clone(b.Warnings)
	return b
}
