package state

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// readerWait is how long root's genv waits for the lock when it only reads: any
// user can hold it for as long as he likes.
const readerWait = 2 * time.Second

// updateOrRead is update, but root's genv changes only what it returns if the lock
// can't be had soon.
func (s *Store) updateOrRead(ctx context.Context, change func(*Files) error, inspect func(*folder)) (Files, error) {
	if !s.mayRepair() {
		return s.updateWithin(ctx, s.wait, change, inspect)
	}
	books, err := s.updateWithin(ctx, min(s.wait, readerWait), change, inspect)
	var busy *BusyError
	if !errors.As(err, &busy) || ctx.Err() != nil {
		return books, err
	}
	if books, err = s.readUnlocked(ctx, busy); err == nil {
		err = change(&books)
	}
	return books, err
}

// readUnlocked is what Read returns, from what is in the files while another process
// holds the lock. Since a genv replaces a file whole, the same valid content twice is
// what a reader with the lock would find; nothing is written to the files. busy is
// the error where that doesn't succeed.
func (s *Store) readUnlocked(ctx context.Context, busy *BusyError) (Files, error) {
	dir, err := s.open()
	if err != nil {
		return Files{}, err
	}
	defer dir.close()
	v := s.look(dir, false)
	defer v.close()
	old, again := s.loadEach(ctx, dir), s.loadEach(ctx, dir)
	if !v.writable || !same(old.envs, again.envs) || !same(old.devices, again.devices) {
		return Files{}, busy
	}
	good, had := s.recallCopy(&v), old.devices != nil
	if err := s.restore(dir, &v, good, &old); err != nil {
		return Files{}, err
	}
	if err := old.err(); err != nil {
		return Files{}, err
	}
	books, known := old.books, s.recall(dir, old.envsStamp)
	s.settle(&v, good, &old, &books, &known, once(s.machine.Process), &census{machine: s.machine})
	books.DevicesNotSaved = good != nil && good.devices != nil && !had
	books.Warnings = append(books.Warnings, fmt.Sprintf("%s: the state files were read without it, and nothing was written", busy.held()))
	return books, nil
}
