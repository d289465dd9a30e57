package rootless

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/container/record"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/changer"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// Host is what root's service knows of its machine. All fields are required.
type Host struct {
	Store       *disk.Store
	Run         string // the folder of the records
	Proc        proc.FS
	Hardware    func() []hardware.Device // nil if it isn't known
	ListDevices func(context.Context) ([]snapshot.Device, error)
	Username    func(context.Context, snapshot.UID) snapshot.Username
	Now         func() time.Time
}

// Do does what is asked. For a claim it returns what the container has. Its errors are those
// of grant.Claim.Apply and of the store; nothing has changed after one.
func (h Host) Do(ctx context.Context, a Asked, by Asker) (grant.Granted, error) {
	if err := a.check(); err != nil {
		return grant.Granted{}, err
	}
	c := &container{Host: h, Asked: a, by: by, id: record.OfUser(by.UID, a.ID)}
	switch {
	case a.Claim != nil:
		return c.claim(ctx)
	case a.Ended:
		return grant.Granted{}, c.end(ctx)
	}
	return grant.Granted{}, c.begin(ctx)
}

// container is one request about one container.
type container struct {
	Host
	Asked
	by Asker
	id string // of the record
}

// maxRecords bounds the records of a user.
const maxRecords = 256

func (c *container) claim(ctx context.Context) (grant.Granted, error) {
	r, err := c.record(c.by.PID)
	if err == nil {
		err = c.mayRecord()
	}
	if err != nil {
		return grant.Granted{}, err
	}
	uid := c.by.UID
	claim := grant.Claim{
		Request: *c.Claim, Proof: grant.Proof{UID: &uid, Kind: record.Rootless, EID: c.Claim.EID}, Container: c.ID, PID: c.by.PID,
		Now: snapshot.DateOf(c.Now()), Username: c.Username(ctx, uid), Hardware: c.Hardware(),
	}
	var g grant.Granted
	err = changer.WithDevices(ctx, c.Store, c.ListDevices, func() (err error) {
		g, err = c.apply(ctx, claim, r)
		return err
	})
	return g, err
}

func (c *container) apply(ctx context.Context, claim grant.Claim, r record.Record) (g grant.Granted, err error) {
	err = c.update(ctx, func(f *state.Files) error {
		if g, err = claim.Apply(f); err == nil {
			err = change.CheckShare(f, c.by.UID)
		}
		if err != nil || g.EID == "" {
			return err
		}
		r.EID = g.EID
		return record.Write(c.Run, r)
	})
	return g, err
}

func (c *container) update(ctx context.Context, do func(*state.Files) error) error {
	release, err := c.by.Turn(ctx)
	if err != nil {
		return err
	}
	defer release()
	return c.Store.Update(ctx, do)
}

// mayRecord refuses more records than a user has containers.
func (c *container) mayRecord() error {
	ids, err := record.List(c.Run)
	own := 0
	for _, id := range ids {
		if r, readErr := record.Read(c.Run, id); readErr == nil && r.Proof == record.Rootless && *r.UID == c.by.UID && id != c.id {
			own++
		}
	}
	if own >= maxRecords {
		return fmt.Errorf("%w: uid %d has more containers with an environment than one user may have", state.ErrRequest, c.by.UID)
	}
	return err
}

// record is that of the container while it has a process of the user who asks.
func (c *container) record(pid snapshot.PID) (record.Record, error) {
	owner, err := c.by.Owner(pid)
	if err != nil {
		return record.Record{}, err
	}
	if owner != c.by.UID {
		return record.Record{}, fmt.Errorf("%w: process %d counts for uid %d", state.ErrNotOwner, pid, owner)
	}
	stat, err := c.Proc.Stat(pid)
	if err != nil {
		return record.Record{}, fmt.Errorf("process %d: %w", pid, err)
	}
	uid := c.by.UID
	return record.Record{
		ID: c.id, UID: &uid, Proof: record.Rootless, Runtime: c.Runtime, StartedAt: c.Now().UTC(), PID: pid, Start: stat.Start,
	}, nil
}

// begin registers the container's init in its environment.
func (c *container) begin(ctx context.Context) error {
	r, err := c.record(c.Init)
	if err != nil {
		return err
	}
	return c.update(ctx, func(f *state.Files) error {
		before, err := record.Read(c.Run, c.id)
		if err != nil {
			return fmt.Errorf("the container was not claimed, or what made it has ended: %w", err)
		}
		env := f.Environment(before.EID)
		if env == nil || env.UID != c.by.UID {
			return fmt.Errorf("environment %s has ended before the container started", before.EID)
		}
		if err := f.Activate(state.Activation{EID: env.EID, UID: env.UID, Username: env.Username, PID: c.Init, At: snapshot.DateOf(c.Now())}); err != nil {
			return err
		}
		if err := change.CheckShare(f, c.by.UID); err != nil {
			return err
		}
		r.EID = env.EID
		return record.Write(c.Run, r)
	})
}

// end gives back what the container had, unless it was started again meanwhile. If it isn't
// asked for, the next look at the state files finds that the init has ended.
func (c *container) end(ctx context.Context) error {
	return c.update(ctx, func(f *state.Files) error {
		r, err := record.Read(c.Run, c.id)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if c.runs(&r) {
			return nil
		}
		if env := f.EnvironmentOf(r.PID); env != nil && env.EID == r.EID && env.UID == c.by.UID {
			f.Deactivate(r.PID)
		}
		return record.Remove(c.Run, c.id)
	})
}

// runs says whether the recorded process runs, other than the one that asks or that waits
// for it: one that couldn't create the container calls the hook itself.
func (c *container) runs(r *record.Record) bool {
	if r.PID == c.by.PID {
		return false
	}
	asking, err := c.Proc.Stat(c.by.PID)
	if err == nil && asking.PPID == r.PID {
		return false
	}
	stat, err := c.Proc.Stat(r.PID)
	return err == nil && !stat.Gone() && stat.Start == r.Start
}
