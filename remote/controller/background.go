package controller

import "sync"

// stateWriter writes the state of a loop in the background, so that the loop does not wait for the disk. Each state is
// the whole one, so the newest replaces those that still wait: however slow the disk is, something is safe after two
// writes at most. The zero stateWriter is ready for use. It is safe for concurrent use.
type stateWriter struct {
	mu     sync.Mutex
	newest func() error // writes the newest state; nil when it is written
	last   *saving      // that ends after all others
	work   sync.WaitGroup
}

// saving is a state that is to be written.
type saving struct {
	done chan struct{} // closed when it, or a newer state, has been written
	err  error         // of that write, when it is done
}

// Write has a state written. It doesn't wait.
func (w *stateWriter) Write(write func() error) *saving {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, before := &saving{done: make(chan struct{})}, w.last
	w.newest, w.last = write, s
	w.work.Go(func() {
		defer close(s.done)
		s.err = before.wait()
		w.mu.Lock()
		newest := w.newest
		w.newest = nil
		w.mu.Unlock()
		if newest != nil {
			s.err = newest()
		}
	})
	return s
}

// wait waits until a state is written, and returns the error. A nil one is not waited for.
func (s *saving) wait() error {
	if s == nil {
		return nil
	}
	<-s.done
	return s.err
}

// mailbox has what goroutines have finished, for one that takes it. They never wait for that.
type mailbox[T any] struct {
	work sync.WaitGroup // of these goroutines

	mu     sync.Mutex
	list   []T
	signal chan struct{}
}

// ready has a value when there is something to take.
func (m *mailbox[T]) ready() chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.signal == nil {
		m.signal = make(chan struct{}, 1)
	}
	return m.signal
}

func (m *mailbox[T]) put(one T) {
	m.mu.Lock()
	m.list = append(m.list, one)
	m.mu.Unlock()
	select {
	case m.ready() <- struct{}{}:
	default: // it has yet to notice the one before
	}
}

func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.list
	m.list = nil
	return list
}
