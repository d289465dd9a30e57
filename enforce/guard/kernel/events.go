package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

const modeEnforce = int32(guard.Enforce)

// The fields of a record in the ring buffer, in native byte order.
const (
	recordBoot   = 0
	recordPIDs   = 8 // the thread's id in the lower half, the process's in the upper one
	recordUID    = 16
	recordMinor  = 20
	recordAccess = 22
	recordKind   = 23
	recordSize   = 24
)

// parseRecord reads a record; ok is false for one of another size.
func parseRecord(b []byte) (e guard.Event, ok bool) {
	if len(b) != recordSize {
		return guard.Event{}, false
	}
	pids := binary.NativeEndian.Uint64(b[recordPIDs:])
	return guard.Event{
		Kind:  guard.EventKind(b[recordKind]),
		Boot:  time.Duration(binary.NativeEndian.Uint64(b[recordBoot:])),
		UID:   snapshot.UID(binary.NativeEndian.Uint32(b[recordUID:])),
		PID:   snapshot.PID(pids >> 32),
		TID:   snapshot.PID(uint32(pids)),
		Minor: int(binary.NativeEndian.Uint16(b[recordMinor:])),
		Read:  b[recordAccess]&2 != 0,
		Write: b[recordAccess]&4 != 0,
	}, true
}

// Events calls handle with each event, oldest first, until the context ends; its error is
// then the context's. Events that were written without a reader are kept as far as the
// buffer has room. There must be one reader at a time on a machine: each event is read once.
func (g *Guard) Events(ctx context.Context, handle func(guard.Event)) error {
	reader, err := ringbuf.NewReader(g.maps.events)
	if err != nil {
		return fmt.Errorf("read the guard's events: %w", err)
	}
	defer reader.Close()
	defer context.AfterFunc(ctx, func() { _ = reader.Close() })()

	var record ringbuf.Record
	for {
		switch err := reader.ReadInto(&record); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ringbuf.ErrClosed):
			return fmt.Errorf("read the guard's events: %w", err)
		case err != nil:
			return fmt.Errorf("read the guard's events: %w", err)
		}
		e, ok := parseRecord(record.RawSample)
		if !ok {
			continue
		}
		boot, err := proc.SinceBoot()
		if err != nil {
			return err
		}
		e.At = time.Now().Add(e.Boot - boot)
		handle(e)
	}
}
