package watch

import (
	"bytes"
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

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
