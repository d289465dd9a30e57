package guard

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/watch"
)

// stateWatch notifies of changes of files in some folders. A folder may be replaced, or removed and
// made again: follow finds that, and has to be called from time to time. Changes may be missed,
// as where the kernel has no inotify instance left: look at the files from time to time as well.
type stateWatch struct {
	changed chan struct{} // a change in at least one folder; buffered

	mu     sync.Mutex
	fd     int // -1 for none
	file   *os.File
	wanted map[string][]string // names of files in each folder
	active map[int]string      // the folders that are watched, by their watch
}

// watchEvents are the changes of files in a folder, and of the folder itself. IN_MODIFY is
// for 1.4.3, which writes in place and may keep the file open.
const watchEvents = unix.IN_CLOSE_WRITE | unix.IN_MODIFY | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_CREATE | unix.IN_DELETE |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ATTRIB | unix.IN_ONLYDIR

// newStateWatch returns a watch that follows no file yet. The error says why there is no inotify;
// the watch then never notifies.
func newStateWatch() (*stateWatch, error) {
	w := &stateWatch{changed: make(chan struct{}, 1), fd: -1, active: map[int]string{}}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return w, os.NewSyscallError("inotify_init1", err)
	}
	w.fd, w.file = fd, os.NewFile(uintptr(fd), "inotify")
	return w, nil
}

// follow sets the names of files that are followed, by folder, and begins to watch the folders that are not watched:
// new ones, and those that were replaced.
func (w *stateWatch) follow(names map[string][]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = names
	if w.fd < 0 {
		return
	}
	active := make(map[int]string, len(names))
	for path := range names {
		id, err := unix.InotifyAddWatch(w.fd, path, watchEvents) // the same one for a folder that is watched already
		if err == nil {                                          // else it may be made later
			active[id] = path
		}
	}
	for id := range w.active {
		if _, still := active[id]; !still {
			_, _ = unix.InotifyRmWatch(w.fd, uint32(id)) // it may be gone already
		}
	}
	w.active = active
}

// run reads changes until ctx ends.
func (w *stateWatch) run(ctx context.Context) {
	if w.file == nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = w.file.Close() })()
	defer func() { _ = w.file.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buffer)
		if err != nil || ctx.Err() != nil {
			return
		}
		if !w.relevant(buffer[:n]) {
			continue
		}
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

// relevant says whether one of the events is about a file that is followed, or says that a folder is gone.
func (w *stateWatch) relevant(events []byte) (relevant bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for e := range watch.InotifyEvents(events) {
		dir, known := w.active[e.Watch]
		switch {
		case e.Mask&unix.IN_Q_OVERFLOW != 0:
			relevant = true
		case !known:
		case e.Mask&(unix.IN_IGNORED|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0:
			delete(w.active, e.Watch)
			relevant = true
		case slices.Contains(w.wanted[dir], e.Name):
			relevant = true
		}
	}
	return relevant
}

// worker does one kind of work on request, in a goroutine of its own, since it may hang.
// Requests that come while it is busy are one. Its results are read from done.
type worker[T any] struct {
	requests chan struct{}
	done     chan T
	ended    chan struct{} // closed when its goroutine has ended
}

// maxPause bounds how long a worker rests.
const maxPause = time.Second

func startWorker[T any](ctx context.Context, work func(context.Context) T) *worker[T] {
	w := &worker[T]{requests: make(chan struct{}, 1), done: make(chan T), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.requests:
			}
			begun := time.Now()
			result := work(ctx)
			select {
			case <-ctx.Done():
				return
			case w.done <- result:
			}
			w.rest(ctx, time.Since(begun))
		}
	}()
	return w
}

// wait waits until the worker has ended after its context, for a moment: it may hang.
func (w *worker[T]) wait() {
	select {
	case <-w.ended:
	case <-time.After(maxPause):
	}
}

// rest waits four times as long as the work took: a user who changes large state files all
// the time gets a fifth of a processor.
func (w *worker[T]) rest(ctx context.Context, worked time.Duration) {
	if worked < time.Millisecond {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(min(4*worked, maxPause)):
	}
}

// request asks for work. It never blocks.
func (w *worker[T]) request() {
	select {
	case w.requests <- struct{}{}:
	default: // it is asked for already
	}
}
