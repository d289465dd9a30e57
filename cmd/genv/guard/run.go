package guard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/guard/kernel"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// run gives an order, renews it, and keeps the guard if no other process does.
func (p *guardCommands) run(c *cli.Context, flags *options) error {
	o, err := p.readOrder(c, flags)
	if err != nil {
		return err
	}
	if err := needsRoot(c); err != nil {
		return err
	}
	if p.vetoExists() {
		return command.UsageError("%s exists, which keeps the guard off: remove it first", VetoFile(p.Getenv))
	}
	if err := pinsOf(p.Getenv).possible(); err != nil {
		return err
	}
	log := p.Logger(c).Level(zerolog.InfoLevel)
	now, err := guard.Now()
	if err != nil {
		return err
	}
	given, err := guard.GiveOrder(disk.RunDir(p.Getenv), o, "", now)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.Context)
	defer cancel()
	renewed := make(chan error, 1)
	go func() { renewed <- p.renew(ctx, cancel, log, given) }()
	keeper := NewKeeper(&p.Program, log)
	keeper.Waiting = func(err error) {
		log.Info().Err(err).Msg("another process keeps the guard, by this order: this one takes over when that ends")
	}
	err = keeper.Run(ctx)
	cancel()
	return errors.Join(err, <-renewed, p.leave(given, log))
}

func (p *guardCommands) readOrder(c *cli.Context, flags *options) (guard.Order, error) {
	o := guard.Order{By: p.author("genv guard run")}
	var err error
	if o.Mode, err = guard.ParseMode(flags.mode); err != nil || o.Mode == guard.Off {
		return o, command.UsageError("missing --mode: write --mode watch or --mode enforce")
	}
	o.LeaseMS = flags.lease.Milliseconds()
	first := flags.firstUID
	if c.IsSet("first-uid") && first < 1 || first > math.MaxUint32 {
		return o, command.WrongFlag("first-uid", " %d: write a uid from 1", first)
	}
	o.FirstUID = snapshot.UID(first)
	for _, user := range flags.exemptUser {
		if id, err := strconv.ParseUint(user, 10, 32); err == nil {
			o.ExemptUIDs = append(o.ExemptUIDs, snapshot.UID(id))
		} else {
			o.ExemptUsers = append(o.ExemptUsers, snapshot.Username(user))
		}
	}
	for _, list := range flags.exemptDevice {
		indices, err := text.ParseIndices[snapshot.DeviceIndex](list)
		if err != nil {
			return o, command.WrongFlag("exempt-device", " %q: %w", list, err)
		}
		o.ExemptDevices = append(o.ExemptDevices, indices...)
	}
	if err := o.Check(); err != nil {
		return o, command.UsageError("%w", err)
	}
	return o, nil
}

func (p pins) possible() error {
	if p.err != nil {
		return p.err
	}
	if r := kernel.Probe(p.Location); r.Err != nil {
		return fmt.Errorf("no guard is possible here; `genv enforce` works without: %w", r.Err)
	}
	return nil
}

// renew renews the order three times within its lease. It ends everything if the guard is turned off, and follows an
// order that replaces its own.
func (p *guardCommands) renew(ctx context.Context, end func(), log zerolog.Logger, given guard.Order) error {
	dir := disk.RunDir(p.Getenv)
	every := time.NewTicker(min(given.Lease()/3, time.Second))
	defer every.Stop()
	for due, mine := time.Now().Add(given.Lease()/3), true; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		present, err := guard.ReadOrder(dir)
		if err == nil && present.ID == given.ID && !time.Now().Before(due) {
			due = time.Now().Add(given.Lease() / 3)
			var now guard.At
			if now, err = guard.Now(); err == nil {
				present, err = guard.RenewOrder(dir, given, now)
			}
		}
		switch {
		case err != nil && !errors.Is(err, guard.ErrReplaced):
			log.Error().Err(err).Msg("the guard is not renewed")
		case present.ID == given.ID:
		case present.Mode == guard.Off:
			log.Info().Str("by", present.By).Msg("the guard was turned off: this process ends")
			end()
			return nil
		case mine:
			mine = false
			log.Info().Str("by", present.By).Stringer("mode",
				present.Mode).Msg("another order has replaced that of this process, which now follows it")
		}
	}
}

// leave ends the guard if the order is still this process's. It leaves no order, so a controller can give one.
func (p *guardCommands) leave(given guard.Order, log zerolog.Logger) error {
	err := guard.WithdrawOrder(disk.RunDir(p.Getenv), given)
	if errors.Is(err, guard.ErrReplaced) {
		return nil
	}
	log.Info().Msg("the guard ends with this process")
	return errors.Join(err, p.remove(guard.Status{Reason: "`genv guard run` has ended"}))
}

// NewKeeper is for `genv guard run` and a controller's stream alike.
func NewKeeper(p *command.Program, log zerolog.Logger) *guard.Keeper {
	pins := pinsOf(p.Getenv)
	reports := newReporter(p, log)
	on := system.New(proc.FS{Reader: p.Reader}, nss.Passwd{})
	store := disk.New(disk.Dir(p.Getenv), disk.Config{ // without names of users: a directory service may be slow
		Now: p.Now, RootDir: disk.RootDir(p.Getenv), System: on,
		LockTimeout: 250 * time.Millisecond, // any user can hold the lock
	})
	return &guard.Keeper{
		RunDir: disk.RunDir(p.Getenv), Veto: VetoFile(p.Getenv), Open: pins.open, Remove: pins.remove,
		Place: store.Where, Read: disk.NewCache(store).Read, Process: on.Process,
		Devices: localhost.Hardware(p.Getenv).Known, UserID: userID, Denied: reports.denied, Log: log,
	}
}

// VetoFile turns the guard off while it exists, whoever orders it.
func VetoFile(getenv func(string) string) string {
	if root := getenv("GENV_ROOT_DIR"); root != "" {
		return filepath.Join(root, "etc/guard.off")
	}
	return "/etc/genv/guard.off"
}

type pins struct {
	kernel.Location
	err error // why there can't be a guard
}

// pinsOf reads GENV_GUARD_PINS and GENV_GUARD_CGROUP, which a simulated host must set.
func pinsOf(getenv func(string) string) pins {
	p := pins{Location: kernel.Location{Dir: getenv("GENV_GUARD_PINS"), Cgroup: getenv("GENV_GUARD_CGROUP")}}
	if getenv("GENV_ROOT_DIR") != "" && (p.Dir == "" || p.Cgroup == "") {
		p.err = fmt.Errorf("%w: GENV_ROOT_DIR needs GENV_GUARD_PINS and GENV_GUARD_CGROUP, too", kernel.ErrUnsupported)
	}
	return p
}

func (p pins) open() (guard.Kernel, error) {
	if p.err != nil {
		return nil, p.err
	}
	g, err := kernel.Open(p.Location)
	if errors.Is(err, kernel.ErrNoBPFFS) {
		p.Unpinned = true
		g, err = kernel.Open(p.Location)
	}
	if err != nil {
		return nil, err // not a nil *kernel.Guard
	}
	return g, nil
}

func (p pins) remove() error {
	if p.err != nil {
		return nil // there never was one
	}
	return kernel.Remove(p.Dir)
}

func userID(ctx context.Context, name snapshot.Username) (uid snapshot.UID, found bool, err error) {
	account, err := nss.Passwd{}.Named(ctx, string(name))
	if errors.Is(err, nss.ErrNoAccount) {
		return 0, false, nil
	}
	return account.UID, err == nil, err
}
