package system

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Environ says what could be read of a process's environ.
type Environ int

const (
	EnvironHidden Environ = iota // this user may not read it, or it is too large
	EnvironLate                  // it was not read in time: another look may know it
	EnvironRead
	EnvironWiped // the process has overwritten its environ, or never had one
)

// IsUnknown says that the process may be in any environment.
func (e Environ) IsUnknown() bool { return e == EnvironHidden || e == EnvironLate }

// RunningProcess is a living process, with what says which environment it is in.
type RunningProcess struct {
	PID, Parent snapshot.PID
	Session     snapshot.PID // see proc.Stat
	Start       snapshot.StartTime
	UID         snapshot.UID // the account
	Name        string
	Environ     Environ
	EID         snapshot.EnvID // the environment that the environ names; empty for none
}

// Uptime is the start time of a process that starts now.
func (p procfs) Uptime() snapshot.StartTime { return proc.StartTimeNow() }

// Running reads /proc.
func (p procfs) Running(wanted func(snapshot.UID) bool) (list []RunningProcess, complete bool) {
	pids, err := p.fs.PIDs()
	if err != nil {
		return nil, false
	}
	quotas := proc.Quotas{}
	complete = p.showsAll()
	for _, pid := range pids {
		r, err := p.running(pid, wanted, quotas)
		switch {
		case err == nil:
			list = append(list, r)
		case errors.Is(err, proc.ErrAccountUnknown): // it may be wanted
			complete = false
		}
	}
	return list, complete
}

func (p procfs) path(pid snapshot.PID, name string) string {
	return filepath.Join(p.root, strconv.Itoa(int(pid)), name)
}

var errUnwanted = errors.New("not a process that is asked for")

func (p procfs) running(pid snapshot.PID, wanted func(snapshot.UID) bool, quotas proc.Quotas) (RunningProcess, error) {
	process, err := p.fs.Open(pid)
	if err != nil {
		return RunningProcess{}, err
	}
	defer func() { _ = process.Close() }() // it was only read
	r := RunningProcess{PID: pid}
	if r.UID, err = process.UID(); err != nil && !errors.Is(err, proc.ErrGone) {
		r.UID, err = p.fs.FolderOwner(pid) // hidepid=1 shows the owner of the folder, and nothing in it
	}
	switch {
	case err != nil:
		return r, err
	case !wanted(r.UID):
		return r, errUnwanted
	}
	stat, err := process.Stat()
	if errors.Is(err, proc.ErrGone) || (err == nil && (stat.Gone() || stat.IsKernelThread())) {
		return r, errUnwanted
	}
	r.Parent, r.Session, r.Start, r.Name = stat.PPID, stat.Session, stat.Start, stat.Name
	process.Quota = quotas.Of(proc.Payer{UID: r.UID})
	value, _, err := process.Environ(snapshot.ClaimVariable)
	switch {
	case err == nil:
		r.Environ, r.EID = EnvironRead, snapshot.Claim(value)
	case errors.Is(err, proc.ErrGone):
		return r, err
	case errors.Is(err, proc.ErrStalled), errors.Is(err, proc.ErrNotRead):
		r.Environ = EnvironLate
	case errors.Is(err, fs.ErrPermission), errors.Is(err, proc.ErrTooLarge):
		r.Environ = EnvironHidden
	default:
		r.Environ = EnvironWiped
	}
	return r, nil
}
