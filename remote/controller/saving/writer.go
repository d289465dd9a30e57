package saving

import "sync"

// Writer writes one state at a time; each is the whole state, so the newest replaces those
// that still wait. The zero Writer is ready for use. It is safe for concurrent use.
type Writer struct {
	mu      sync.Mutex
	busy    bool
	waiting *state // the next one; nil for none
	work    sync.WaitGroup
}

type state struct {
	write func()
	safe  chan struct{}
}

// Write has a state written, and returns a channel that is closed when that, or a newer one,
// has been written. It doesn't wait.
func (w *Writer) Write(write func()) (safe <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = &state{safe: make(chan struct{})}
	}
	w.waiting.write = write
	if !w.busy {
		w.busy = true
		w.work.Go(w.run)
	}
	return w.waiting.safe
}

// After does something in the background once safe, which Write returned, is closed.
func (w *Writer) After(safe <-chan struct{}, do func()) {
	w.work.Go(func() { <-safe; do() })
}

// Wait waits until all is written, and what comes After that is done. Neither Write nor After
// may be called meanwhile. A nil Writer has nothing to write.
func (w *Writer) Wait() {
	if w != nil {
		w.work.Wait()
	}
}

// run writes until nothing waits.
func (w *Writer) run() {
	for s := w.next(); s != nil; s = w.next() {
		s.write()
		close(s.safe)
	}
}

func (w *Writer) next() *state {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.waiting
	w.waiting, w.busy = nil, s != nil
	return s
}
