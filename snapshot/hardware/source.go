package hardware

import (
	"errors"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Source is where a process of genv learns what the GPUs of its machine are. The zero
// Source is a process that is restricted by nothing, and publishes nothing.
type Source struct {
	Run  string // root's run folder; empty for none
	Proc string // where /proc is mounted; empty for /proc
	Root bool   // this process is root's
	// Contained says that this process is in a container that has only some of the devices.
	Contained bool
}

// Guarded says whether a guard is on: programs then name devices by UUID, since a user's
// nvidia-smi and CUDA number only those that the guard lets through.
func (s Source) Guarded(now time.Time) bool { return s.Run != "" && IsGuarded(s.Run, now) }

// Guard is what the guard of this machine does; nil if that isn't known.
func (s Source) Guard(now time.Time) *snapshot.Guard {
	if s.Run == "" {
		return nil
	}
	return Guard(s.Run, now, proc.FS{Root: s.Proc})
}

// Restricted says whether nvidia-smi may show this process only some of the devices, and
// number them differently.
func (s Source) Restricted(now time.Time) bool { return s.Contained || !s.Root && s.Guarded(now) }

// Known are the devices without nvidia-smi: those that root has published, or else those
// of the driver's /proc folder, of which the memory is unknown. The error wraps
// ErrNotPublished, if that is why.
func (s Source) Known() ([]Device, error) {
	if s.Run == "" {
		return FromDriver(s.Proc)
	}
	list, err := Read(s.Run)
	if err == nil {
		return list, nil
	}
	if list, driverErr := FromDriver(s.Proc); driverErr == nil {
		return list, nil
	}
	return nil, err
}

// Publish publishes the devices that root's nvidia-smi found, if the driver's /proc folder
// knows them: otherwise they are those of a simulation. For other users than root it does
// nothing.
func (s Source) Publish(found []snapshot.Device) (changed bool, err error) {
	if !s.Root || s.Run == "" {
		return false, nil
	}
	driver, err := FromDriver(s.Proc)
	if err != nil {
		return false, err
	}
	list := Identified(found, driver)
	if !slices.ContainsFunc(list, func(d Device) bool { return d.Minor != nil }) {
		return false, errors.New("the driver's /proc folder knows none of the devices that nvidia-smi lists")
	}
	return Publish(s.Run, list)
}

// ListsAll says whether a list of so many devices can be all that the driver has; yes if
// that is unknown.
func (s Source) ListsAll(devices int) bool {
	if Count(s.Proc) <= devices {
		return true
	}
	driver, err := FromDriver(s.Proc) // without those that are excluded
	return err == nil && len(driver) <= devices
}
