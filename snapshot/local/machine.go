package local

import (
	"context"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// SMI is what is needed of nvidia-smi; *nvidiasmi.Client is one.
type SMI interface {
	Apps(ctx context.Context) (nvidiasmi.Usage, error)
	Devices(ctx context.Context) ([]nvidiasmi.Device, error)
	List(ctx context.Context) ([]nvidiasmi.Listed, error)
}

// Books is what is needed of the state files.
type Books interface {
	// Read returns the registered environments and the devices with their
	// attachments, without those that have ended. The devices are empty when
	// the books do not hold any yet.
	Read(ctx context.Context) ([]snapshot.Environment, []snapshot.Device, error)
	// AddDevices enters the devices that the books do not hold yet, and returns
	// all that they hold then.
	AddDevices(ctx context.Context, found []snapshot.Device) ([]snapshot.Device, error)
}

// Machine is this machine. Its fields are set before its first use; then it is
// safe for concurrent use.
type Machine struct {
	SMI   SMI
	Proc  proc.FS // the zero FS is /proc
	Books Books
	// Username names a uid; an error means that nobody could. Nil means
	// /etc/passwd.
	Username func(snapshot.UID) (snapshot.Username, error)
	// DevicesFor is for how long a list of devices is used again before
	// nvidia-smi is asked anew; 0 asks for every snapshot. UsedMemory and
	// Utilization are as old as that list. A device that is not on it makes
	// nvidia-smi be asked at once.
	DevicesFor time.Duration
	// Now is the clock for DevicesFor; nil means time.Now.
	Now func() time.Time

	mu sync.Mutex
}
