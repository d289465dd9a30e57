package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Uptime is the start time that a process would have which started now.
func (p procfs) Uptime() snapshot.StartTime {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	return snapshot.StartTime(now.Sec*userHZ + now.Nsec*userHZ/1e9)
}

// userHZ is the unit of start times, USER_HZ, which is 100 on all platforms
// that Go knows.
const userHZ = 100

// Running walks through /proc.
func (p procfs) Running(wanted func(snapshot.UID) bool) (list []RunningProcess, complete bool) {
	entries, err := os.ReadDir(p.root)
	if err != nil {
		return nil, false
	}
	for _, e := range entries {
		pid, err := strconv.ParseInt(e.Name(), 10, 32)
		if err != nil {
			continue
		}
		if r, ok := p.running(snapshot.PID(pid), wanted); ok {
			list = append(list, r)
		}
	}
	return list, p.showsAll()
}

func (p procfs) running(pid snapshot.PID, wanted func(snapshot.UID) bool) (RunningProcess, bool) {
	process, err := p.fs.Open(pid)
	if err != nil {
		return RunningProcess{}, false
	}
	defer func() { _ = process.Close() }() // it was only read
	r := RunningProcess{PID: pid}
	if r.UID, err = process.UID(); err != nil { // hidepid=1 shows the folder's owner, and nothing in it
		if errors.Is(err, proc.ErrGone) || !p.owner(&r) {
			return r, false
		}
	}
	if !wanted(r.UID) {
		return r, false
	}
	stat, err := process.Stat()
	if errors.Is(err, proc.ErrGone) || (err == nil && (stat.Gone() || stat.IsKernelThread())) {
		return r, false
	}
	r.Parent, r.Start, r.Name = stat.PPID, stat.Start, stat.Name
	value, _, err := process.Environ(snapshot.ClaimVariable)
	switch {
	case err == nil:
		r.Environ, r.EID = EnvironRead, snapshot.Claim(value)
	case errors.Is(err, proc.ErrGone):
		return r, false
	case errors.Is(err, fs.ErrPermission):
		r.Environ = EnvironHidden
	default:
		r.Environ = EnvironWiped
	}
	return r, true
}

// owner is the uid that the folder of a process has.
func (p procfs) owner(r *RunningProcess) bool {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(p.root, strconv.Itoa(int(r.PID))), &st) != nil {
		return false
	}
	r.UID = snapshot.UID(st.Uid)
	return true
}
