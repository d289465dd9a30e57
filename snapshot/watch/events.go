package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// isDevice excludes nvidiactl and others, which are opened for any question to the driver.
func isDevice(name string) bool {
	number, ok := strings.CutPrefix(name, "nvidia")
	return ok && len(number) >= 1 && len(number) <= 4 && strings.Trim(number, "0123456789") == ""
}

// stateNames has the files of state and reservations, and waits.json of the run folder. Others are locks and notes.
var stateNames = []string{"envs.json", "devices.json", "waits.json", "reservations.json"}

const askersFile = "askers.json" // service.AskedNote

// folders watches by inotify: device nodes that come and go, the state files, the run folder (the guard's open log,
// waits of root's service), and opens of nodes if nothing else does.
type folders struct {
	fd         int
	dev        string
	state      []string
	run        string         // empty for none
	dirs       map[int]string // by their watch
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

// watchAgain watches the present folders, also recreated ones.
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
	if wd, err := unix.InotifyAddWatch(f.fd, dir, mask); err == nil { // else it may appear later
		f.dirs[wd] = dir
	}
}

func (f *folders) nodes() []string {
	entries, _ := os.ReadDir(f.dev) // it may appear later
	var list []string
	for _, e := range entries {
		if isDevice(e.Name()) {
			list = append(list, filepath.Join(f.dev, e.Name()))
		}
	}
	return list
}

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
	nodes  bool // a device node was created
	opened bool // a device was opened
	guard  bool // the guard's open log changed
}

func (f *folders) read() (all inotifyEvent) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := unix.Read(f.fd, buffer)
		if err != nil || n <= 0 {
			return all // EAGAIN: no more
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
	case dir == f.run && e.Name == askersFile:
		all.state = true
	case dir == f.dev && isDevice(e.Name):
		all.nodes = all.nodes || e.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0
	case slices.Contains(stateNames, e.Name):
		all.state = true
	}
}

// openFanotify watches opens of these nodes, unless no. Events with a file handle (FID) don't open the file, which
// would call the driver. Before Linux 5.13 they can't watch files on a tmpfs, which /dev is.
func openFanotify(no bool, nodes []string) (fd int, err error) {
	if no {
		return -1, fmt.Errorf("fanotify_init: %w", unix.ENOSYS)
	}
	fd, err = unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|unix.FAN_REPORT_FID, 0)
	if err != nil {
		return -1, fmt.Errorf("fanotify_init: %w", err)
	}
	for _, node := range nodes {
		if err := markNode(fd, node); err != nil && !errors.Is(err, os.ErrNotExist) {
			_ = unix.Close(fd)
			return -1, err
		}
	}
	return fd, nil
}

// markNode watches a node by fanotify while it exists. Marking it again changes nothing.
func markNode(fd int, path string) error {
	const how = unix.FAN_MARK_ADD | unix.FAN_MARK_DONT_FOLLOW
	if err := unix.FanotifyMark(fd, how, unix.FAN_OPEN, unix.AT_FDCWD, path); err != nil {
		return fmt.Errorf("fanotify_mark: %w", err)
	}
	return nil
}

func readOpens(fd int) map[snapshot.PID]bool {
	pids := make(map[snapshot.PID]bool)
	buffer := make([]byte, 16<<10)
	for {
		n, err := unix.Read(fd, buffer)
		if err != nil || n <= 0 {
			return pids // EAGAIN: no more
		}
		parseOpens(buffer[:n], pids)
	}
}

// Fields of struct fanotify_event_metadata (fanotify(7)), in native byte order.
const (
	fanLength   = 0
	fanMask     = 8
	fanPID      = 20
	fanMetadata = 24 // its size
)

// parseOpens adds the PIDs of events, and stops at invalid ones.
func parseOpens(b []byte, pids map[snapshot.PID]bool) {
	for len(b) >= fanMetadata {
		length := binary.NativeEndian.Uint32(b[fanLength:])
		if length < fanMetadata || int(length) > len(b) {
			return
		}
		pid := int32(binary.NativeEndian.Uint32(b[fanPID:])) //nolint:gosec // it is one
		switch mask := binary.NativeEndian.Uint64(b[fanMask:]); {
		case mask&unix.FAN_Q_OVERFLOW != 0, mask&unix.FAN_OPEN != 0 && pid < 0:
			pids[0] = true
		case mask&unix.FAN_OPEN != 0:
			pids[snapshot.PID(pid)] = true
		}
		b = b[length:]
	}
}

// InotifyEvent is an event of inotify(7).
type InotifyEvent struct {
	Watch int    // the result of inotify_add_watch(2); -1 for an overflow
	Mask  uint32 // such as unix.IN_OPEN
	Name  string // of the file in a watched folder; empty for the folder itself
}

// InotifyEvents parses events, and stops at invalid ones.
func InotifyEvents(b []byte) iter.Seq[InotifyEvent] {
	return func(yield func(InotifyEvent) bool) {
		for len(b) >= unix.SizeofInotifyEvent {
			watch := int32(binary.NativeEndian.Uint32(b)) //nolint:gosec // it is one
			mask, length := binary.NativeEndian.Uint32(b[4:]), uint64(binary.NativeEndian.Uint32(b[12:]))
			end := unix.SizeofInotifyEvent + length
			if end > uint64(len(b)) {
				return
			}
			name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:end], []byte{0})
			if !yield(InotifyEvent{int(watch), mask, string(name)}) {
				return
			}
			b = b[end:]
		}
	}
}
