package genvhost

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// Behavior is how a host behaves at one request; the zero value answers as genv
// does.
type Behavior struct {
	Wait   time.Duration // before it does anything
	Freeze bool          // does nothing until the client hangs up
	Damage Damage        // what becomes of the answer, after the request is carried out
}

// Damage is what becomes of an answer.
type Damage int32

// The kinds of damage.
const (
	Intact  Damage = iota
	Silent         // it is never written
	Cut            // half of it is written, and then the command ends
	Hangup         // the command ends without it
	Garbled        // one byte is another
	Noise          // other bytes are written in its place
	Double         // it is written twice
)

func (m Behavior) pause(ctx, wanted context.Context) error {
	if m.Wait <= 0 && !m.Freeze {
		return nil
	}
	over := time.After(m.Wait)
	if m.Freeze {
		over = nil
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

var errHangup = errors.New("the host hangs up")

// damager is a writer that may damage the next answer. A frame comes in one Write.
type damager struct {
	w    io.Writer
	next atomic.Int32 // a Damage
}

// behave damages the next answer.
func (t *damager) behave(m Behavior) {
	if m.Damage != Intact {
		t.next.Store(int32(m.Damage))
	}
}

func (t *damager) Write(p []byte) (int, error) {
	switch Damage(t.next.Swap(int32(Intact))) {
	case Silent:
		return len(p), nil
	case Cut:
		_, _ = t.w.Write(p[:len(p)/2]) // the error below counts
		return 0, errHangup
	case Hangup:
		return 0, errHangup
	case Garbled:
		p = bytes.Clone(p)
		p[len(p)-1] ^= 0x20
	case Noise:
		p = []byte("\x00\xff{\"processes\": []}\n")
	case Double:
		p = bytes.Repeat(p, 2)
	}
	if _, err := t.w.Write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}
