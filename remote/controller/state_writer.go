package controller

import "sync"

// stateWriter writes the state of a loop in the background, so that the loop does not wait for the
// disk. Each state is the whole one, so the newest replaces those that still wait: however slow the
// disk is, something is safe after two writes at most. The zero stateWriter is ready for use. It is
// safe for concurrent use.
type stateWriter struct {
	mu      sync.Mutex
	busy    bool
	waiting *saving // the next one; nil for none
	work    sync.WaitGroup
}

// saving is a state that is to be written.
type saving struct {
	write func() error
	done  chan struct{} // closed when that, or a newer state, has been written
	err   error         // of that write, when it is done
}

// Write has a state written. It doesn't wait.
func (w *stateWriter) Write(write func() error) *saving {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = &saving{done: make(chan struct{})}
	}
	w.waiting.write = write
	if !w.busy {
		w.busy = true
		w.work.Go(w.run)
	}
	return w.waiting
}

// Wait waits until all is written. Write may not be called meanwhile. A nil stateWriter has nothing to write.
func (w *stateWriter) Wait() {
	if w != nil {
		w.work.Wait()
	}
}

// run writes until nothing waits.
func (w *stateWriter) run() {
	for s := w.next(); s != nil; s = w.next() {
		s.err = s.write()
		close(s.done)
	}
}

func (w *stateWriter) next() *saving {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.waiting
	w.waiting, w.busy = nil, s != nil
	return s
}
