package disk

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// Cache is a Store that takes no lock to read while files and processes are unchanged. It is safe for concurrent use.
type Cache struct {
	*Store

	mu   sync.Mutex
	last reading
}

// reading is a result of Read, and what it depends on.
type reading struct {
	valid     bool
	at        time.Time
	versions  Versions
	processes map[snapshot.PID]system.ProcessStatus
	files     state.Files
}

// Versions are the states of both state files; zero for a missing one. Its owner can't set the ctime of a file.
type Versions [len(stateFiles)]unix.Stat_t

// NewCache returns a Cache of a store.
func NewCache(s *Store) *Cache { return &Cache{Store: s} }

// minAge is how old a file must be to be cached: one that is written twice within a tick looks unchanged.
const minAge = 2 * time.Second

// maxCacheTime bounds how long a change that is not noticed has no effect.
const maxCacheTime = time.Minute

// Remember is Store.Remember. The next Read shows it.
func (c *Cache) Remember(ctx context.Context, answers []snapshot.Answer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last.valid = false
	return c.Store.Remember(ctx, answers)
}

// Read is Store.Read. The caller may change the lists that it returns.
func (c *Cache) Read(ctx context.Context) (state.Files, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if start := c.System.Uptime(); c.upToDate() {
		c.looked.Store(uint64(start))
		return c.last.copy(), nil
	}
	next := reading{at: time.Now(), processes: map[snapshot.PID]system.ProcessStatus{}}
	var err error
	next.files, next.versions, err = c.read(ctx)
	next.valid = err == nil && len(next.files.Warnings) == 0 && next.versions.cacheable(c.Now())
	for i := range next.files.Environments {
		e := &next.files.Environments[i]
		next.valid = next.valid && len(e.KernelIDs) == 0 // no PID says whether these live
		for _, pid := range e.PIDs {
			next.processes[pid] = c.System.Process(pid)
		}
	}
	c.last = next
	return c.last.copy(), err
}

// RegisterDevices is Store.RegisterDevices. It may change root's note alone, which the versions don't show.
func (c *Cache) RegisterDevices(ctx context.Context, found []snapshot.Device) (state.Files, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = reading{}
	return c.Store.RegisterDevices(ctx, found)
}

func (c *Cache) upToDate() bool {
	if !c.last.valid || time.Since(c.last.at) > maxCacheTime {
		return false
	}
	if dir, _, err := c.Where(); err != nil || VersionsIn(dir) != c.last.versions {
		return false
	}
	for pid, was := range c.last.processes {
		now := c.System.Process(pid)
		if was.Liveness != system.Alive || now.Liveness != system.Alive || was.Start != now.Start ||
			was.Owner == nil || now.Owner == nil || *was.Owner != *now.Owner {
			return false
		}
	}
	return true
}

// VersionsIn identifies the state files in a folder, following no link.
func VersionsIn(dir string) (v Versions) {
	for i, file := range stateFiles {
		if unix.Lstat(filepath.Join(dir, file.String()), &v[i]) != nil {
			v[i] = unix.Stat_t{}
		}
		v[i].Atim = unix.Timespec{} // reading changes nothing
	}
	return v
}

// cacheable says whether a later change of the files will change their versions.
func (v Versions) cacheable(now time.Time) bool {
	return !slices.ContainsFunc(v[:], func(file unix.Stat_t) bool {
		return file.Ino == 0 || now.Sub(time.Unix(file.Ctim.Unix())) < minAge
	})
}

func (r *reading) copy() state.Files {
	f := r.files
	f.Environments = slices.Clone(f.Environments)
	f.Devices = slices.Clone(f.Devices)
	f.Warnings = slices.Clone(f.Warnings)
	return f
}
