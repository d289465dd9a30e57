package genvhost

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// Mood is how a host behaves at one request; the zero Mood is to answer as it
// should.
type Mood struct {
	Wait   time.Duration // before it does anything
	Freeze bool          // does and says nothing any more, until it is hung up on
	Twist  Twist         // what becomes of the answer, once it did what it was asked
}

// Twist is what becomes of an answer.
type Twist int

// The twists.
const (
	Straight Twist = iota
	Silent         // it is never written
	Cut            // half of it is written, and then the command ends
	Hangup         // the command ends without it
	Garbled        // one byte is another
	Noise          // other bytes stand in its place
	Double         // it is written twice
)

func (m Mood) pause(ctx, wanted context.Context) error {
	if m.Wait <= 0 && !m.Freeze {
		return nil
	}
	var over <-chan time.Time
	if !m.Freeze {
		timer := time.NewTimer(m.Wait)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
		return nil
	case <-wanted.Done():
		return context.Cause(wanted)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errTwisted = errors.New("the host hangs up")

// twister writes answers as the mood has it. A frame comes in one Write.
type twister struct {
	w io.Writer

	mu   sync.Mutex
	next Twist
}

// behave twists the next answer.
func (t *twister) behave(m Mood) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.Twist != Straight {
		t.next = m.Twist
	}
}

// take is how to twist this answer.
func (t *twister) take() Twist {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.next
	t.next = Straight
	return taken
}

// To has it write there.
func (t *twister) To(w io.Writer) io.Writer {
	t.w = w
	return t
}

func (t *twister) Write(p []byte) (int, error) {
	switch t.take() {
	case Silent:
		return len(p), nil
	case Cut:
		_, _ = t.w.Write(p[:len(p)/2]) // the error below counts
		return 0, errTwisted
	case Hangup:
		return 0, errTwisted
	case Garbled:
		p = append([]byte(nil), p...)
		p[len(p)-1] ^= 0x20
	case Noise:
		p = []byte("\x00\xff{\"processes\": []}\n")
	case Double:
		p = append(append([]byte(nil), p...), p...)
	}
	if _, err := t.w.Write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}
