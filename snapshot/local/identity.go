package local

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// sighting is a process as /proc shows it, before the state files are read.
type sighting struct {
	// process has the environment of its environ alone; Usage and Inherited are
	// empty.
	process snapshot.Process
	// lineage is the process itself and its ancestors, the nearest first. It is
	// not whole if lineageErr says why.
	lineage    []proc.Ancestor
	lineageErr error
	// doubt is why its environ doesn't show its environment. It becomes a warning
	// unless an ancestor's environment is known.
	doubt    error
	warnings []string
}

// claim is what a process's environ says of its environment.
type claim struct {
	eid     snapshot.EnvID
	warning string
	of      image
}

// image is one run of one program by one process.
type image struct {
	start   snapshot.StartTime
	address uint64
	name    string
}

// traits are what else is read of a process. They rarely change while it runs the
// same program under the same parent and uid, and cost more to read than all the
// rest, so they are remembered for a while.
type traits struct {
	of        traitsOf
	at        time.Time
	owner     snapshot.UID
	container string
	command   string
	ancestors []proc.Ancestor
}

type traitsOf struct {
	image
	parent snapshot.PID
	uid    snapshot.UID
}

// traitsFor is how long traits are remembered.
const traitsFor = time.Minute

// knowledge is what is remembered about processes from one snapshot to the next.
type knowledge struct {
	claims map[snapshot.PID]claim
	traits map[snapshot.PID]traits
	owners map[proc.Ancestor]owner // of registered ancestors
}

func newKnowledge() knowledge {
	return knowledge{map[snapshot.PID]claim{}, map[snapshot.PID]traits{}, map[proc.Ancestor]owner{}}
}

// observer looks at processes for one snapshot.
type observer struct {
	fs            proc.FS
	family        *proc.AncestorFinder
	namespace     string // our own user namespace
	brief         bool   // see Collector.Brief
	now           time.Time
	before, after knowledge
}

// look identifies a process. It reads the environ only of a process that was not
// there the last time, or has run another program since. What can't be read is
// left unknown, and a warning says so. The only error is proc.ErrGone: the process
// has ended.
func (o *observer) look(pid snapshot.PID) (sighting, error) {
	p, err := o.fs.Open(pid)
	if errors.Is(err, proc.ErrGone) {
		return sighting{}, err
	}
	if err != nil {
		return sighting{process: snapshot.Process{PID: pid, EnvUnknown: true}, lineageErr: err, warnings: []string{err.Error()}}, nil
	}
	defer func() { _ = p.Close() }() // it was only read
	stat, statErr := p.Stat()
	if statErr == nil && stat.Gone() {
		statErr = proc.ErrGone
	}
	credentials, credErr := p.Credentials()
	c, claimErr := o.claim(p, stat)
	seen := sighting{doubt: claimErr, process: snapshot.Process{
		PID: pid, EID: c.eid, Start: stat.Start, Name: proc.Printable([]byte(p.Command(stat))),
		EnvUnknown: claimErr != nil, EnvOverwritten: errors.Is(claimErr, proc.ErrOverwritten),
	}}
	for _, err := range []error{statErr, credErr, claimErr} {
		if errors.Is(err, proc.ErrGone) {
			return sighting{}, err
		}
	}
	for _, err := range []error{statErr, credErr} {
		if err != nil {
			seen.warnings = append(seen.warnings, err.Error())
		}
	}
	if c.warning != "" {
		seen.warnings = append(seen.warnings, c.warning)
	}
	if statErr != nil || credErr != nil {
		seen.lineageErr = errors.Join(statErr, credErr)
	}
	o.describe(&seen, p, stat, credentials, credErr == nil)
	return seen, nil
}

// claim is what the environ says, from before if the process still runs the
// same program.
func (o *observer) claim(p *proc.Handle, stat proc.Stat) (claim, error) {
	c, now := o.before.claims[p.PID], image{stat.Start, stat.EnvAddress, stat.Name}
	if c.of == now && now.address != 0 {
		o.after.claims[p.PID] = c
		return c, nil
	}
	c, err := readClaim(p)
	if err == nil {
		c.of = now
		o.after.claims[p.PID] = c
	}
	return c, err
}

// readClaim reads the environ. An id that could never be registered (see
// snapshot.Claim) is no claim.
func readClaim(p *proc.Handle) (claim, error) {
	value, _, err := p.Environ(snapshot.ClaimVariable)
	if err != nil {
		return claim{}, err
	}
	c := claim{eid: snapshot.Claim(value)}
	if c.eid == "" && value != "" {
		c.warning = fmt.Sprintf("process %d has a %s that no environment can have: it is ignored", p.PID, snapshot.ClaimVariable)
	}
	return c, nil
}

// describe adds a process's traits.
func (o *observer) describe(seen *sighting, p *proc.Handle, stat proc.Stat, credentials proc.Credentials, uidKnown bool) {
	of := traitsOf{image{stat.Start, stat.EnvAddress, stat.Name}, stat.PPID, credentials.UID}
	t, known := o.before.traits[p.PID]
	if !known || t.of != of || of.address == 0 || o.now.Sub(t.at) >= traitsFor {
		t = traits{of: of, at: o.now}
		if !o.brief {
			t.container, t.command = p.Container(credentials), p.CommandLine()
		}
		if uidKnown {
			t.owner = p.OwnerOfUID(credentials.UID, o.namespace)
		}
		if seen.lineageErr == nil {
			t.ancestors, seen.lineageErr = o.family.Ancestors(stat)
		}
	}
	if seen.lineageErr == nil {
		o.after.traits[p.PID] = t
	}
	seen.process.Container, seen.process.Command = t.container, t.command
	if uidKnown {
		seen.process.UID = &t.owner
	}
	seen.lineage = append([]proc.Ancestor{{PID: p.PID, Start: stat.Start}}, t.ancestors...)
}
