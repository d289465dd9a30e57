package localhost

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/seed-3119e985/genv/snapshot/state"
)

// StateFiles are the state files without what is dead. A host whose devices are not
// registered yet has environments all the same.
func (h *Host) StateFiles(ctx context.Context) (state.Files, error) {
	books, err := h.Store.Read(ctx)
	if errors.Is(err, state.ErrNoDevices) {
		err = nil
	}
	return books, err
}

// RawStateFiles are what the state files hold, dead parts included.
func (h *Host) RawStateFiles(ctx context.Context) (state.Files, error) {
	books, err := h.Store.ReadRaw(ctx)
	if errors.Is(err, state.ErrNoDevices) {
		err = nil
	}
	return books, err
}

// Update changes the state files. Where that fails for want of devices, nvidia-smi is
// asked, without the lock, whether there are more than the state files know.
func (h *Host) Update(ctx context.Context, change func(*state.Files) error) error {
	err := h.Store.Update(ctx, change)
	var tooMany *state.TooManyError
	var none *state.NoDeviceError
	if !errors.Is(err, state.ErrNoDevices) && !errors.As(err, &tooMany) && !errors.As(err, &none) {
		return err
	}
	switch found, smiErr := h.Machine.ListDevices(ctx); {
	case smiErr != nil && errors.Is(err, state.ErrNoDevices):
		return smiErr
	case smiErr != nil:
		return err
	default:
		if _, err := h.Store.RegisterDevices(ctx, found); err != nil {
			return err
		}
	}
	return h.Store.Update(ctx, change)
}

// Devices are the state files with the devices of this host. nvidia-smi is slow, so
// it is asked only when the state files hold no devices yet, or the driver has more.
func (h *Host) Devices(ctx context.Context, raw bool) (state.Files, error) {
	read := h.Store.Read
	if raw {
		read = h.Store.ReadRaw
	}
	books, err := read(ctx)
	unregistered := errors.Is(err, state.ErrNoDevices)
	if err != nil && !unregistered {
		return books, err
	}
	if !unregistered && driverDevices(h.Machine.Proc.Root) <= len(books.Devices) {
		return books, nil
	}
	found, err := h.Machine.ListDevices(ctx)
	if err != nil && unregistered {
		return books, err
	}
	if err != nil {
		books.Warnings = append(books.Warnings, "this host has devices that are not listed: "+err.Error())
		return books, nil
	}
	if books, err = h.Store.RegisterDevices(ctx, found); err != nil || !raw {
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
