package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/seed-3119e985/genv/snapshot/state"
)

// devices are the books with the devices of this host. nvidia-smi is slow, so
// it is asked only when the books hold no devices yet, or the driver has more.
func (h *host) devices(ctx context.Context, raw bool) (state.Books, error) {
	read := h.store.Read
	if raw {
		read = h.store.ReadRaw
	}
	books, err := read(ctx)
	unregistered := errors.Is(err, state.ErrNoDevices)
	if err != nil && !unregistered {
		return books, err
	}
	if !unregistered && driverDevices(h.machine.Proc.Root) <= len(books.Devices) {
		return books, nil
	}
	found, err := h.machine.Found(ctx)
	if err != nil && unregistered {
		return books, err
	}
	if err != nil {
		books.Warnings = append(books.Warnings, "this host has devices that are not listed: "+err.Error())
		return books, nil
	}
	if books, err = h.store.Discover(ctx, found); err != nil || !raw {
		return books, err
	}
	return read(ctx)
}

// driverDevices is how many devices NVIDIA's driver has, which is cheap to ask;
// 0 where it doesn't tell. The driver makes a folder for each in
// /proc/driver/nvidia/gpus (NVIDIA driver README, "proc file system interface").
func driverDevices(proc string) int {
	if proc == "" {
		proc = "/proc"
	}
	entries, err := os.ReadDir(filepath.Join(proc, "driver/nvidia/gpus"))
	if err != nil {
		return 0
	}
	return len(entries)
}
