package guard

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/guard/kernel"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// NewKeeper is the Keeper of this machine's guard. It serves `genv guard run` and a
// controller's stream alike: the one that holds the lock works.
func NewKeeper(p *command.Program, log zerolog.Logger) *guard.Keeper {
	pins := pinsOf(p.Getenv)
	reports := newReporter(p, log)
	on := system.On(proc.FS{Reader: p.Reader})
	store := disk.New(disk.Dir(p.Getenv), disk.Config{ // without names of users, which a directory service may delay
		Now: p.Now, RootDir: disk.RootDir(p.Getenv), LockTimeout: stateLock, System: on,
	})
	return &guard.Keeper{
		RunDir: disk.RunDir(p.Getenv), Veto: VetoFile(p.Getenv), Open: pins.open, Remove: pins.remove,
		Place: store.Where, Read: disk.NewCache(store).Read, Process: on.Process,
		Devices: localhost.Hardware(p.Getenv).Known, UserID: userID, Denied: reports.denied, Log: log,
	}
}

// VetoFile turns the guard off as long as it exists, no matter who orders it.
func VetoFile(getenv func(string) string) string {
	if root := getenv("GENV_ROOT_DIR"); root != "" {
		return filepath.Join(root, "etc/guard.off")
	}
	return "/etc/genv/guard.off"
}

// pins say where the guard of this machine is.
type pins struct {
	kernel.Location
	err error // why there can't be one
}

// pinsOf reads GENV_GUARD_PINS and GENV_GUARD_CGROUP. A simulated host must have its own:
// the guard of the machine that it runs on isn't its business.
func pinsOf(getenv func(string) string) pins {
	p := pins{Location: kernel.Location{Dir: getenv("GENV_GUARD_PINS"), Cgroup: getenv("GENV_GUARD_CGROUP")}}
	if getenv("GENV_ROOT_DIR") != "" && (p.Dir == "" || p.Cgroup == "") {
		p.err = fmt.Errorf("%w: with GENV_ROOT_DIR, GENV_GUARD_PINS and GENV_GUARD_CGROUP have to name folders for "+
			"the guard", kernel.ErrUnsupported)
	}
	return p
}

func (p pins) dir() string {
	if p.Dir == "" {
		return kernel.DefaultDir
	}
	return p.Dir
}

// open opens the guard, without pins where there is no bpffs for them.
func (p pins) open() (guard.Kernel, error) {
	if p.err != nil {
		return nil, p.err
	}
	g, err := kernel.Open(p.Location)
	if errors.Is(err, kernel.ErrNoBPFFS) {
		unpinned := p.Location
		unpinned.Unpinned = true
		g, err = kernel.Open(unpinned)
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

// remove ends the guard at once.
func (p pins) remove() error {
	if p.err != nil {
		return nil // there never was one
	}
	return kernel.Remove(p.Dir)
}

// stateLock is how long a Keeper waits for the lock on the state files, which any user can hold, before it reads them.
const stateLock = 250 * time.Millisecond

// userID finds the uid of a user, as guard.Keeper wants it.
func userID(ctx context.Context, name snapshot.Username) (uid snapshot.UID, found bool, err error) {
	account, err := nss.Passwd{}.Named(ctx, string(name))
	if errors.Is(err, nss.ErrNoAccount) {
		return 0, false, nil
	}
	return account.UID, err == nil, err
}
