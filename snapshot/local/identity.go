package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// observation is what /proc shows before the state files are read.
type observation struct {
	process    snapshot.Process // with the environment in its environ, without Usage and Inherited
	ancestors  []proc.ID        // the nearest first, and last the leader of its session, perhaps gone
	lineageErr error            // why they are incomplete
	environErr error            // why the environ can't be read: a warning unless an ancestor shows the environment
	warnings   []string
	member     container.ContainedProcess
	asked      bool // ContainerInfo is complete
}

type environClaim struct {
	eid snapshot.EnvID
	of  proc.Stat // by runOf
}

// runOf identifies one run of a program by a process.
func runOf(stat proc.Stat) proc.Stat {
	return proc.Stat{Start: stat.Start, EnvAddress: stat.EnvAddress, Name: stat.Name}
}

// processDetails take longest to read, and rarely change while a process runs the same program under the same parent
// and uid.
type processDetails struct {
	run       proc.Stat // by runOf
	parent    snapshot.PID
	uid       snapshot.UID
	at        time.Time
	owner     snapshot.UID
	ownerErr  error // why the owner is unknown
	container container.ContainedProcess
	info      *snapshot.ContainerInfo // of the container
	asked     bool                    // Containers returned info
	command   string
	ancestors []proc.ID
	stall     proc.Stall // what holds its memory, once known
}

const detailsTTL = time.Minute // maximum for details and owners

type processCache struct {
	claims     map[snapshot.PID]environClaim
	unverified map[snapshot.PID]environClaim // to read again; they serve if an account's quota is used up
	details    map[snapshot.PID]processDetails
	ancestors  map[proc.ID]readAncestor
	proved     map[proc.ID]bool // processes that had a device node open
}

func newProcessCache() processCache {
	return processCache{
		claims: map[snapshot.PID]environClaim{}, details: map[snapshot.PID]processDetails{},
		ancestors: map[proc.ID]readAncestor{}, proved: map[proc.ID]bool{},
	}
}

type observer struct {
	fs            proc.FS
	ancestors     *proc.AncestorFinder
	brief         bool // see Collector.Brief
	now           time.Time
	patience      time.Duration // time left to wait for accounts
	register      *snapshot.Register
	answers       []snapshot.Answer // that the register doesn't know
	before, after processCache
	quotas        proc.Quotas
	unseen        []snapshot.Process // listed by the driver, with their devices
	hidden        error              // about a process that /proc hides (hidepid); nil for none
}

// observe reads a process, its environ only if the process or its program is new. What it can't read is unknown, with a
// warning. The only error is proc.ErrGone, with the PID if the process was seen.
func (o *observer) observe(pid snapshot.PID) (observation, error) {
	h, err := o.fs.Open(pid)
	if errors.Is(err, proc.ErrGone) {
		return observation{}, err
	}
	if err != nil {
		return o.hides(pid, err), nil
	}
	defer h.Close()
	stat, statErr := h.Stat()
	if statErr == nil && stat.Gone() {
		statErr = proc.ErrGone
	}
	uid, uidErr := h.RealUID()
	if errors.Is(statErr, proc.ErrUnreadable) && errors.Is(uidErr, proc.ErrUnreadable) {
		return o.hides(pid, statErr), nil
	}
	account, _ := o.awaitAccount(uid)
	h.Quota = o.quotas.Of(proc.QuotaKey{UID: account})
	c, environErr := o.claim(h, stat)
	lineageErr := errors.Join(statErr, uidErr)
	if err := errors.Join(lineageErr, environErr); errors.Is(err, proc.ErrGone) {
		return observation{process: snapshot.Process{PID: pid}}, err
	}
	seen := observation{environErr: environErr, lineageErr: lineageErr, process: snapshot.Process{
		PID: pid, EID: c.eid, Start: stat.Start, Name: text.Masked(h.Command(stat)),
		EnvUnknown: environErr != nil, EnvOverwritten: errors.Is(environErr, proc.ErrOverwritten),
	}}
	for _, err := range []error{statErr, uidErr} {
		if err != nil {
			seen.warnings = append(seen.warnings, err.Error())
		}
	}
	d, err := o.details(h, stat, uid)
	seen.process.Unreadable = d.unreadable(h, cmp.Or(statErr, environErr))
	seen.process.Container, seen.process.Command = d.container.Place.ID, d.command
	seen.process.ContainerInfo, seen.member, seen.asked = d.info, d.container, d.asked || d.container.Place.ID == ""
	if d.at.Equal(o.now) {
		seen.member.Ancestors = d.ancestors
	}
	switch owner := d.owner; {
	case d.ownerErr != nil:
		seen.hideOwner(d.ownerErr)
	case uidErr == nil:
		seen.process.UID = &owner
	}
	if lineageErr == nil {
		seen.ancestors = append(slices.Clip(d.ancestors), proc.ID{PID: stat.Session})
		seen.lineageErr = err
	}
	if seen.lineageErr == nil && d.ownerErr == nil {
		o.after.details[pid] = d
	}
	return seen, nil
}

func (o *observer) hides(pid snapshot.PID, err error) observation {
	o.hidden = err
	return observation{process: snapshot.Process{PID: pid}, environErr: err}
}

func (d *processDetails) unreadable(h *proc.Handle, err error) *snapshot.Unreadable {
	switch {
	case errors.Is(err, proc.ErrTooLarge):
		return &snapshot.Unreadable{Why: fmt.Sprintf("its environment has more than the %d MiB that are read",
			proc.MaxEnviron>>20), ByUser: true}
	case !errors.Is(err, proc.ErrStalled):
		d.stall = proc.Stall{}
		return nil
	case d.stall == proc.Stall{}:
		d.stall = h.Stall(d.owner, d.container.Rootless)
	}
	const what = "its environment and memory map "
	u := &snapshot.Unreadable{Why: what + "do not answer"}
	switch stall := d.stall; {
	case stall.Network:
		u.Why = what + "are stalled by a network file system"
	case stall.Mounter != nil:
		u.Why = fmt.Sprintf("%sare stalled by a FUSE file system of uid %d", what, *stall.Mounter)
		u.ByUser = *stall.Mounter != 0
	case stall.FUSE:
		u.Why = what + "are stalled by a FUSE file system"
	}
	return u
}

// hideOwner also hides the environment: its claim would count for the unknown owner.
func (s *observation) hideOwner(err error) {
	s.process.EID, s.process.EnvUnknown, s.process.EnvOverwritten, s.process.Unreadable = "", true, false, nil
	s.environErr = fmt.Errorf("the owner of process %d: %w", s.process.PID, err)
}

// accountsWithin is how long one look waits for accounts. Later looks find out the rest.
const accountsWithin = 500 * time.Millisecond

// awaitAccount waits for all accounts of a look together: users can have many subordinate uids.
func (o *observer) awaitAccount(uid snapshot.UID) (snapshot.UID, error) {
	account, err := o.fs.Account(uid)
	if err == nil || o.patience <= 0 {
		return account, err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), o.patience)
	defer cancel()
	account, err = o.fs.AllAccounts().Wait(ctx, uid)
	o.patience -= time.Since(began)
	return account, err
}

// claim returns the cached claim of the same program, or reads it. If the quota is used up, the last claim counts for
// any program: else renaming a process could make it unknown.
func (o *observer) claim(h *proc.Handle, stat proc.Stat) (environClaim, error) {
	now := runOf(stat)
	last, known := o.before.claims[h.PID]
	if known && last.of == now && now.EnvAddress != 0 {
		o.after.claims[h.PID] = last
		return last, nil
	}
	if !known {
		last, known = o.before.unverified[h.PID]
	}
	eid, err := readClaim(h)
	c := environClaim{eid, now}
	if err != nil {
		if !errors.Is(err, proc.ErrNotRead) || !known || now.Start == 0 || last.of.Start != now.Start {
			return environClaim{}, err
		}
		c = last // of the run that was read: the next look tries again
	}
	o.after.claims[h.PID] = c
	return c, nil
}

func readClaim(h *proc.Handle) (snapshot.EnvID, error) {
	value, _, err := h.Environ(snapshot.ClaimVariable)
	return snapshot.Claim(value), err
}

// details returns the cached details if still valid. The error is about the ancestors.
func (o *observer) details(h *proc.Handle, stat proc.Stat, uid snapshot.UID) (d processDetails, err error) {
	run := runOf(stat)
	d, known := o.before.details[h.PID]
	same := known && d.run == run && d.parent == stat.PPID && d.uid == uid && run.EnvAddress != 0
	// They expire one by one, so that no snapshot reads all processes of a host.
	if same && o.now.Sub(d.at) < detailsTTL-time.Duration(h.PID%20)*time.Second {
		return d, nil
	}
	d = processDetails{run: run, parent: stat.PPID, uid: uid, at: o.now}
	owner, rootless := h.OwnerOfUID(uid, o.fs.UserNamespace())
	d.owner, d.ownerErr = o.awaitAccount(owner)
	if !o.brief {
		d.command = h.CommandLine()
		d.container = container.ContainedProcess{
			PID: h.PID, Start: stat.Start, Place: h.Container(), Rootless: rootless, UID: d.owner,
			InnerNamespace: h.InInnerNamespace(),
		}
	}
	d.ancestors, err = o.ancestors.Ancestors(stat)
	return d, err
}
