package guard

import (
	"context"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/watch"
)

// stateWatch notifies of changed files by name in folders; follow adds new and replaced folders. It may miss changes,
// for example without a free inotify instance.
type stateWatch struct {
	names   []string
	changed chan struct{} // a change in at least one folder; buffered
	file    *os.File      // nil for no inotify, which fails at each call
}

// watchEvents are changes of files and folders. IN_MODIFY is for 1.4.3, which writes in place and may keep them open.
const watchEvents = unix.IN_CLOSE_WRITE | unix.IN_MODIFY | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_CREATE |
	unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ATTRIB | unix.IN_ONLYDIR

// With an error there is no inotify, and the watch never notifies.
func newStateWatch(names ...string) (*stateWatch, error) {
	w := &stateWatch{names: names, changed: make(chan struct{}, 1)}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return w, os.NewSyscallError("inotify_init1", err)
	}
	w.file = os.NewFile(uintptr(fd), "inotify")
	return w, nil
}

func (w *stateWatch) follow(dirs ...string) {
	conn, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) { // fails once run has ended
		for _, dir := range dirs {
			_, _ = unix.InotifyAddWatch(int(fd), dir, watchEvents) // a missing one may be made later
		}
	})
}

func (w *stateWatch) run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = w.file.Close() })()
	defer func() { _ = w.file.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buffer)
		if err != nil || ctx.Err() != nil {
			return
		}
		for e := range watch.InotifyEvents(buffer[:n]) {
			const folderGone = unix.IN_IGNORED | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT
			if e.Mask&(unix.IN_Q_OVERFLOW|folderGone) == 0 && !slices.Contains(w.names, e.Name) {
				continue
			}
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}
}

// worker does one kind of work on request in its own goroutine, since it may hang. It joins requests while busy.
type worker struct {
	requests chan struct{}
	ended    chan struct{} // closed with its goroutine's end
}

const maxPause = time.Second

func startWorker(ctx context.Context, learned chan<- func(), work func(context.Context) func()) *worker {
	w := &worker{requests: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.requests:
			}
			begun := time.Now()
			learn := work(ctx)
			select {
			case <-ctx.Done():
				return
			case learned <- learn:
			}
			rest(ctx, time.Since(begun))
		}
	}()
	return w
}

func (w *worker) wait() {
	select {
	case <-w.ended:
	case <-time.After(maxPause):
	}
}

// rest waits four times as long as the work took, so that constantly changing files take a fifth of a CPU.
func rest(ctx context.Context, worked time.Duration) {
	if worked < time.Millisecond {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(min(4*worked, maxPause)):
	}
}

func (w *worker) request() {
	select {
	case w.requests <- struct{}{}:
	default: // it is asked for already
	}
}
