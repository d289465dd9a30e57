package guard

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/watch"
)

// stateWatch notifies of changes of files in some folders. A folder may be replaced, or removed and
// made again: follow finds that, and has to be called from time to time. Changes may be missed,
// as where the kernel has no inotify instance left: look at the files from time to time as well.
type stateWatch struct {
	changed chan struct{} // a change in at least one folder; buffered

	searching atomic.Bool

	mu     sync.Mutex
	fd     int // -1 for none
	file   *os.File
	wanted map[string]map[string]bool // names of files in each folder
	active map[int]string             // the folders that are watched, by their watch
}

// watchEvents are the changes of files in a folder, and of the folder itself. IN_MODIFY is
// for 1.4.3, which writes in place and may keep the file open.
const watchEvents = unix.IN_CLOSE_WRITE | unix.IN_MODIFY | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_CREATE | unix.IN_DELETE |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ATTRIB | unix.IN_ONLYDIR

// newStateWatch returns a watch that follows no file yet. The error says why there is no inotify;
// the watch then never notifies.
func newStateWatch() (*stateWatch, error) {
	w := &stateWatch{changed: make(chan struct{}, 1), fd: -1, wanted: map[string]map[string]bool{}, active: map[int]string{}}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return w, os.NewSyscallError("inotify_init1", err)
	}
	w.fd, w.file = fd, os.NewFile(uintptr(fd), "inotify")
	return w, nil
}

// follow sets the names of files that are followed, by folder.
func (w *stateWatch) follow(names map[string][]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = map[string]map[string]bool{}
	for dir, list := range names {
		w.wanted[dir] = map[string]bool{}
		for _, name := range list {
			w.wanted[dir][name] = true
		}
	}
	w.check()
}

// check begins to watch the folders that are not watched: new ones, and those that were
// replaced. The caller holds the mutex.
func (w *stateWatch) check() (begun bool) {
	if w.fd < 0 {
		return false
	}
	active := make(map[int]string, len(w.wanted))
	for path := range w.wanted {
		id, err := unix.InotifyAddWatch(w.fd, path, watchEvents) // the same one for a folder that is watched already
		if err != nil {
			continue // it may be made later
		}
		_, known := w.active[id]
		begun = begun || !known
		active[id] = path
	}
	for id := range w.active {
		if _, still := active[id]; !still {
			_, _ = unix.InotifyRmWatch(w.fd, uint32(id)) // it may be gone already
		}
	}
	w.active = active
	return begun
}

// recheck is check for callers that don't hold the mutex.
func (w *stateWatch) recheck() (begun bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.check()
}

// gonePause is how soon a watched folder that vanished is looked for.
const gonePause = 20 * time.Millisecond

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
		relevant, gone := w.relevant(buffer[:n])
		if relevant {
			w.notify()
		}
		if gone && w.searching.CompareAndSwap(false, true) {
			go w.search(ctx)
		}
	}
}

// search looks for folders that vanished, every gonePause for two seconds: they may be made
// again.
func (w *stateWatch) search(ctx context.Context) {
	defer w.searching.Store(false)
	for range 100 {
		if w.recheck() {
			w.notify()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gonePause):
		}
	}
}

func (w *stateWatch) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// relevant says whether one of the events is about a file that is followed, and whether a
// folder is gone or was moved.
func (w *stateWatch) relevant(events []byte) (relevant, gone bool) {
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
			relevant, gone = true, true
		case w.wanted[dir][e.Name]:
			relevant = true
		}
	}
	return relevant, gone
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
