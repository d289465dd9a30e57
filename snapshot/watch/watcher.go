// Package watch says when a look at this machine is worthwhile: a process opened a GPU's device node, a process on a
// GPU has ended, or the state files have changed.
//
//	w := watch.Open(watch.Config{DevDir: "/dev", StateDirs: []string{"/var/tmp/genv"}})
//	defer w.Close()
//	for w.Wait(ctx) == nil {
//		done := w.Look()
//		s, _ := machine.Snapshot(ctx)
//		done(s)
//	}
//
// Opening is not using: nvidia-smi and every NVML program open all nodes. So an event only leads to a look, and an
// opener that has ended to none. Looks are at least 100 ms apart, and rarer after looks without news (pace).
//
// Opens of nodes in DevDir are watched by fanotify (Linux 5.13, as root) with the opener's PID, else by inotify without
// it (MethodOf). The keeper of the kernel guard writes all opens to guard-opens.json in root's run folder (OpenLog).
package watch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Config says what to watch.
type Config struct {
	DevDir    string   // folder of device nodes; empty for /dev
	StateDirs []string // folders of state files
	RunDir    string   // root's run folder with the guard's open log; empty for none
	Proc      proc.FS  // the zero FS is /proc
	// SMI returns the path of nvidia-smi; empty for none. Opens by root's don't cause a look.
	SMI   func() string
	Debug func(text string, err error) // logs how opens are watched, and errors; nil for nothing

	noFanotify bool // as on an older kernel
}

// ErrClosed is returned by Wait when the Watcher is closed.
var ErrClosed = errors.New("the watcher is closed")

// Watcher watches this machine. It is safe for concurrent use.
type Watcher struct {
	config Config
	events *poller // nil if the kernel has none
	work   sync.WaitGroup

	looking sync.Mutex // held during a look

	mu     sync.Mutex
	pace   *pace
	shown  []string  // by the last successful look: see usesOf; nil before
	woke   time.Time // Wait returned without a look since
	turned chan struct{}
	closed bool
}

// Open begins to watch, and logs what it can't watch. The first Wait returns at once.
func Open(config Config) *Watcher {
	if config.DevDir == "" {
		config.DevDir = "/dev"
	}
	if config.Debug == nil {
		config.Debug = func(string, error) {}
	}
	w := &Watcher{config: config, pace: newPace(), turned: make(chan struct{})}
	w.begin()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pace.begins(time.Now())
	return w
}

// Close ends all waits.
func (w *Watcher) Close() {
	w.mu.Lock()
	w.closed = true
	w.turn()
	w.mu.Unlock()
	w.events.close()
	w.work.Wait()
}

// turn wakes waiters after a change; w.mu must be held.
func (w *Watcher) turn() {
	close(w.turned)
	w.turned = make(chan struct{})
}

// Look begins a look, one at a time. The caller calls done with its snapshot, nil if it failed.
func (w *Watcher) Look() (done func(*snapshot.Snapshot)) {
	w.looking.Lock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pace.lookBegins(time.Now())
	w.woke = time.Time{}
	return w.looked
}

func (w *Watcher) looked(s *snapshot.Snapshot) {
	defer w.looking.Unlock()
	w.note(w.events.remaining()...) // during the look
	listed, uses := make(map[snapshot.PID]bool), make(map[snapshot.PID]bool)
	shown := w.shown
	if s != nil {
		for i := range s.Processes {
			p := &s.Processes[i]
			listed[p.PID] = true
			uses[p.PID] = !p.EnvUnknown // during execve(2) it can't be judged yet
		}
		shown = usesOf(s)
		w.events.watchEnds(listed)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := w.shown != nil && !slices.Equal(shown, w.shown) // not for the first look
	w.shown = shown
	w.pace.lookEnds(time.Now(), changed, func(pid snapshot.PID) bool { return uses[pid] }, w.alive)
	w.turn()
}

// Wait waits for an event after the begin of the last look. The error is ctx's cause, or ErrClosed.
func (w *Watcher) Wait(ctx context.Context) error {
	for {
		w.mu.Lock()
		at, ok := w.pace.next()
		if again := w.woke.Add(floor); ok && at.Before(again) { // a caller that doesn't look may not spin
			at = again
		}
		turned, closed, now := w.turned, w.closed, time.Now()
		switch {
		case closed:
			w.mu.Unlock()
			return ErrClosed
		case ok && !at.After(now) && w.pace.isDue(now, w.alive):
			w.woke = now
			w.mu.Unlock()
			return nil
		case ok && !at.After(now): // the openers have ended
			w.mu.Unlock()
			continue
		}
		w.mu.Unlock()
		var due <-chan time.Time
		if ok {
			due = time.After(at.Sub(now))
		}
		select {
		case <-turned:
		case <-due:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *Watcher) note(sources ...source) {
	if len(sources) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, s := range sources {
		w.pace.happened(s, now)
	}
	w.turn()
}

func (w *Watcher) isLooking() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pace.looking != nil
}

func (w *Watcher) alive(o opener) bool {
	alive, err := w.config.Proc.Alive(o.pid, o.start)
	return alive || err != nil // unknown is not gone
}

// Method is how opens of devices are watched.
type Method string

// Methods, the best one first.
const (
	ByFanotify Method = "fanotify" // with the PID of the opener
	ByInotify  Method = "inotify"  // without it
	NotAtAll   Method = "interval" // only looks at intervals find uses of devices
)

// MethodOf is how a Watcher of this process would watch opens. The error is why it can't use fanotify.
func MethodOf(devDir string) (Method, error) { return methodOf(devDir, false) }

func methodOf(devDir string, noFanotify bool) (Method, error) {
	files, err := newFolders(&Config{DevDir: devDir})
	if err != nil {
		return NotAtAll, err
	}
	defer func() { _ = unix.Close(files.fd) }()
	opens, err := openFanotify(noFanotify, files.nodes())
	if err != nil {
		return ByInotify, err
	}
	_ = unix.Close(opens)
	return ByFanotify, nil
}
