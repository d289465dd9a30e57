package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// fanotify reports who opens device nodes, by their handle (FID): other events open the file, and call the driver.
type fanotify struct{ fd int }

// openFanotify watches these nodes. Before Linux 5.13 it can't watch files on a tmpfs, which /dev is.
func openFanotify(no bool, nodes []string) (*fanotify, error) {
	if no {
		return nil, fmt.Errorf("fanotify_init: %w", unix.ENOSYS)
	}
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|unix.FAN_REPORT_FID, 0)
	if err != nil {
		return nil, fmt.Errorf("fanotify_init: %w", err)
	}
	f := &fanotify{fd}
	for _, node := range nodes {
		if err := f.mark(node); err != nil && !errors.Is(err, os.ErrNotExist) {
			_ = unix.Close(fd)
			return nil, err
		}
	}
	return f, nil
}

// mark watches a node, for as long as the node exists. Marking it again changes nothing.
func (f *fanotify) mark(path string) error {
	if err := unix.FanotifyMark(f.fd, unix.FAN_MARK_ADD|unix.FAN_MARK_DONT_FOLLOW, unix.FAN_OPEN, unix.AT_FDCWD,
		path); err != nil {
		return fmt.Errorf("fanotify_mark: %w", err)
	}
	return nil
}

// read returns the PIDs of those who opened a node; 0 if a PID is not known.
func (f *fanotify) read() map[snapshot.PID]bool {
	pids := make(map[snapshot.PID]bool)
	buffer := make([]byte, 16<<10)
	for {
		n, err := unix.Read(f.fd, buffer)
		if err != nil || n <= 0 {
			return pids // EAGAIN: there are no more
		}
		parseOpens(buffer[:n], pids)
	}
}

// The fields of struct fanotify_event_metadata (fanotify(7)), in native byte order.
const (
	fanLength   = 0
	fanMask     = 8
	fanPID      = 20
	fanMetadata = 24 // its size
)

// parseOpens adds the PIDs of events. What doesn't look like an event ends it.
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

// InotifyEvent is one change, as the kernel writes it into an inotify descriptor (inotify(7)).
type InotifyEvent struct {
	Watch int    // the number that inotify_add_watch(2) returned; -1 for an overflow
	Mask  uint32 // what happened: unix.IN_OPEN and the like
	Name  string // of the file in a watched folder; empty for the folder itself
}

// InotifyEvents are the events in what was read. What doesn't look like one ends them.
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
