package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// isDevice says whether a name is that of a GPU's node. nvidiactl and the others are opened to ask the driver anything.
func isDevice(name string) bool {
	number, ok := strings.CutPrefix(name, "nvidia")
	return ok && len(number) >= 1 && len(number) <= 4 && strings.Trim(number, "0123456789") == ""
}

// stateNames are the state files and reservations, and waits.json of the run folder. Others there are locks and notes.
var stateNames = []string{"envs.json", "devices.json", "waits.json", "reservations.json"}

const askedFile = "asked.json"

// folders watches by inotify: device nodes that come and go, the state files, and the run folder, in which the guard
// says who opened devices and root's service who waits; and opens of nodes where nothing else does.
type folders struct {
	fd         int
	dev        string
	state      []string
	run        string         // empty for none
	dirs       map[int]string // that are watched, by their watch
	watchOpens bool
	opens      map[int]bool // watches of device nodes
}

func newFolders(c *Config) (*folders, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	f := &folders{
		fd: fd, dev: c.DevDir, state: c.StateDirs, run: c.RunDir, dirs: make(map[int]string),
		opens: make(map[int]bool),
	}
	f.watchAgain()
	return f, nil
}

// watchAgain watches the folders that there are now, also those that were made again.
func (f *folders) watchAgain() {
	const made = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_ONLYDIR
	f.watch(f.dev, made)
	for _, dir := range f.state {
		f.watch(dir, made|unix.IN_CLOSE_WRITE)
	}
	if f.run != "" {
		f.watch(f.run, unix.IN_MOVED_TO|unix.IN_ONLYDIR)
	}
}

func (f *folders) watch(dir string, mask uint32) {
	if wd, err := unix.InotifyAddWatch(f.fd, dir, mask); err == nil { // else it may be made later
		f.dirs[wd] = dir
	}
}

func (f *folders) nodes() []string {
	entries, _ := os.ReadDir(f.dev) // it may be made later
	var list []string
	for _, e := range entries {
		if isDevice(e.Name()) {
			list = append(list, filepath.Join(f.dev, e.Name()))
		}
	}
	return list
}

// watchNode watches opens of a node, for as long as it exists.
func (f *folders) watchNode(path string) error {
	wd, err := unix.InotifyAddWatch(f.fd, path, unix.IN_OPEN|unix.IN_DONT_FOLLOW)
	if err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	f.opens[wd] = true
	return nil
}

type inotifyEvent struct {
	state  bool // a state file changed
	nodes  bool // a device node was made
	opened bool // a device was opened
	guard  bool // the guard says who opened one
}

func (f *folders) read() (all inotifyEvent) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := unix.Read(f.fd, buffer)
		if err != nil || n <= 0 {
			return all // EAGAIN: there are no more
		}
		for e := range InotifyEvents(buffer[:n]) {
			f.add(e, &all)
		}
	}
}

func (f *folders) add(e InotifyEvent, all *inotifyEvent) {
	switch dir, watched := f.dirs[e.Watch]; {
	case e.Mask&unix.IN_Q_OVERFLOW != 0:
		*all = inotifyEvent{state: true, nodes: true, opened: f.watchOpens, guard: true}
	case e.Mask&unix.IN_IGNORED != 0:
		all.state = all.state || slices.Contains(f.state, dir)
		delete(f.dirs, e.Watch)
		delete(f.opens, e.Watch)
	case f.opens[e.Watch]:
		all.opened = true
	case !watched:
	case dir == f.run && e.Name == OpenLogFile:
		all.guard = true
	case dir == f.run && e.Name == askedFile:
		all.state = true
	case dir == f.dev && isDevice(e.Name):
		all.nodes = all.nodes || e.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0
	case slices.Contains(stateNames, e.Name):
		all.state = true
	}
}
