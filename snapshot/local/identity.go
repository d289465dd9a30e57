package local

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// identity says who a process is: its start, owner, name, and the environment that
// it claims to be in; Usage is left empty. What cannot be told is left unknown,
// and a warning says so. The only error is proc.ErrGone: it has ended.
func identity(p *proc.Process, claimOf func(proc.Stat) (claim, error)) (snapshot.Process, []string, error) {
	stat, statErr := p.Stat()
	if statErr == nil && stat.Gone() {
		statErr = proc.ErrGone
	}
	uid, uidErr := p.UID()
	claim, claimErr := claimOf(stat)
	var warnings []string
	for _, err := range []error{statErr, uidErr, claimErr} {
		if errors.Is(err, proc.ErrGone) {
			return snapshot.Process{}, nil, err
		}
		if err != nil {
			warnings = append(warnings, err.Error())
		}
	}
	if claim.warning != "" {
		warnings = append(warnings, claim.warning)
	}
	seen := snapshot.Process{PID: p.PID, EID: claim.eid, EnvUnknown: claimErr != nil, Start: stat.Start, Name: printable(p.Command(stat))}
	if uidErr == nil {
		seen.UID = &uid
	}
	return seen, warnings, nil
}

// claim is what a process says of its environment.
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

// readClaim reads the environ. An id that could never be registered (see
// snapshot.Claim) is no claim: the process is in no environment.
func readClaim(p *proc.Process) (claim, error) {
	value, _, err := p.Environ(snapshot.ClaimVariable)
	if err != nil {
		return claim{}, err
	}
	c := claim{eid: snapshot.Claim(value)}
	if c.eid == "" && value != "" {
		c.warning = fmt.Sprintf("process %d has a %s that no environment can have: it is in none", p.PID, snapshot.ClaimVariable)
	}
	return c, nil
}

// look is identity by PID. It reads the environ only of a process that was not
// there the last time, or has run another program since, and adds what it
// learned to claims.
func (m *Machine) look(pid snapshot.PID, before, claims map[snapshot.PID]claim) (snapshot.Process, []string, error) {
	p, err := m.Proc.Open(pid)
	if errors.Is(err, proc.ErrGone) {
		return snapshot.Process{}, nil, err
	}
	if err != nil {
		return snapshot.Process{PID: pid, EnvUnknown: true}, []string{err.Error()}, nil
	}
	defer func() { _ = p.Close() }() // it was only read
	return identity(p, func(stat proc.Stat) (claim, error) {
		c, now := before[pid], image{stat.Start, stat.EnvAddress, stat.Name}
		if c.of == now && now.address != 0 {
			claims[pid] = c
			return c, nil
		}
		c, err := readClaim(p)
		if err == nil {
			c.of = now
			claims[pid] = c
		}
		return c, err
	})
}

// printable is a name that its process chose, without what a terminal obeys.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(name, "?"))
}
