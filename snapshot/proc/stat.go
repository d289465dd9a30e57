// Package proc reads /proc: the owner of a process, its start, environment, container and ancestors. The mount point is
// injected, so that tests can use a folder.
//
//	h, err := proc.FS{}.Open(pid)
//	if err != nil {
//		return err // wraps proc.ErrGone or proc.ErrUnreadable
//	}
//	defer h.Close()
//	stat, err := h.Stat()
//	eid, found, err := h.Environ("GENV_ENVIRONMENT_ID")
//
// A Handle is one process, even if its PID is reused. What is unknown is the error ErrUnreadable, never a "no". The
// owner of a process decides how long its environ, cmdline, maps and fd take to read: a ReaderProcess reads them in
// another program, and kills that if it takes too long. The package sends no other signals and writes nothing. Sources:
// proc(5), the kernel's filesystems/proc.rst and fs/proc.
package proc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// Stat is the content of /proc/PID/stat.
type Stat struct {
	PID     snapshot.PID
	Name    string // the command's name, at most 15 bytes, any bytes; a kernel thread's may be longer
	State   byte   // R, S, D, Z, …
	PPID    snapshot.PID
	Session snapshot.PID // the PID of its session's leader, perhaps gone
	TTY     uint64       // its terminal's device number as in stat(2); 0 for none
	Flags   uint64       // PF_… of include/linux/sched.h
	Threads int
	Start   snapshot.StartTime
	// EnvAddress is where its environment is in memory (env_start, field 50), at random for each execve(2): with the
	// same PID, start and address, the environ is the same. It is 0 if the kernel hides it, during execve(2), and
	// without memory of its own.
	EnvAddress uint64
	NoEnviron  bool   // it started with an empty environment, and has no title over it
	EnvSize    uint64 // bytes of its environment; 0 also if hidden
}

const kernelThread = 0x00200000 // PF_KTHREAD of include/linux/sched.h

// Gone says that the process has ended or is a zombie. A zombie with other threads has only lost its first one.
func (s Stat) Gone() bool {
	return s.State == 'X' || s.State == 'x' || s.State == 'Z' && s.Threads <= 1
}

// IsKernelThread says that it has no program and no environment, and is never signalled.
func (s Stat) IsKernelThread() bool { return s.Flags&kernelThread != 0 }

// Stat reads /proc/PID/stat. A zombie is not an error: see Stat.Gone.
func (h *Handle) Stat() (Stat, error) { return h.fs.statAt(h.PID, h.dir, "stat") }

// Stat needs no Handle for a single file: an open file of /proc is of one process.
func (fs FS) Stat(pid snapshot.PID) (Stat, error) {
	if pid <= 0 {
		return Stat{}, fmt.Errorf("%w: %d is not a PID", ErrGone, pid)
	}
	return fs.statAt(pid, unix.AT_FDCWD, fs.path(pid)+"/stat")
}

func (fs FS) statAt(pid snapshot.PID, dir int, name string) (Stat, error) {
	data, err := soon(fs, pid, func() ([]byte, error) { return readOnce(dir, name, statLimit) })
	if err != nil {
		return Stat{}, fs.classify(pid, err)
	}
	stat, err := ParseStat(data)
	if err != nil {
		return Stat{}, fmt.Errorf("%w: PID %d: %w", ErrUnreadable, pid, err)
	}
	return stat, nil
}

// Alive says whether a process with that start time (0 is any) runs. ErrUnreadable means unknown.
func (fs FS) Alive(pid snapshot.PID, start snapshot.StartTime) (bool, error) {
	stat, err := fs.Stat(pid)
	if errors.Is(err, ErrGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return !stat.Gone() && (start == 0 || stat.Start == start), nil
}

func with[T any](fs FS, pid snapshot.PID, read func(*Handle) (T, error)) (T, error) {
	p, err := fs.Open(pid)
	if err != nil {
		var none T
		return none, err
	}
	defer p.Close()
	return read(p)
}

const statLimit = 2 << 10 // bytes; more than 52 numbers and a name take

var errStat = errors.New("not a line of /proc/PID/stat")

// ParseStat parses /proc/PID/stat. The name may contain any characters: field 3 begins after the last ")".
func ParseStat(data []byte) (Stat, error) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 0 || end < open {
		return Stat{}, errStat
	}
	var bad error // the first one
	number := func(text []byte, bits int) uint64 {
		v, err := strconv.ParseUint(string(text), 10, bits)
		bad = cmp.Or(bad, err)
		return v
	}
	stat := Stat{Name: string(data[open+1 : end]), PID: snapshot.PID(number(bytes.TrimSpace(data[:open]), 31))}
	at, startCode, envEnd := 2, uint64(0), uint64(0)
	for field := range bytes.FieldsSeq(data[end+1:]) {
		switch at++; at {
		case 3:
			if len(field) != 1 {
				return Stat{}, errStat
			}
			stat.State = field[0]
		case 4:
			stat.PPID = snapshot.PID(number(field, 31))
		case 6:
			stat.Session = snapshot.PID(number(field, 31))
		case 7: // as new_encode_dev of include/linux/kdev_t.h
			tty, err := strconv.ParseInt(string(field), 10, 32)
			bad = cmp.Or(bad, err)
			stat.TTY = unix.Mkdev(uint32(tty)>>8&0xfff, uint32(tty)&0xff|uint32(tty)>>12&0xfff00) //nolint:gosec // bits
		case 9:
			stat.Flags = number(field, 64)
		case 20:
			stat.Threads = int(number(field, 31))
		case 22:
			stat.Start = snapshot.StartTime(number(field, 64))
		case 26:
			startCode = number(field, 64)
		case 50:
			stat.EnvAddress = number(field, 64)
		case 51:
			envEnd = number(field, 64)
		}
	}
	if at < 22 {
		return Stat{}, errStat
	}
	if bad != nil {
		return Stat{}, fmt.Errorf("%w: %w", errStat, bad)
	}
	if at < 51 || startCode == 0 { // execve(2) sets it last
		stat.EnvAddress = 0
	}
	if stat.EnvAddress != 0 {
		stat.NoEnviron = envEnd == stat.EnvAddress
		stat.EnvSize = max(envEnd, stat.EnvAddress) - stat.EnvAddress
	}
	return stat, nil
}

// MemTotal is the machine's memory in KiB, from /proc/meminfo.
func (fs FS) MemTotal() (kib int64, err error) {
	file, err := os.Open(filepath.Join(fs.root(), "meminfo"))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if _, err := fmt.Fscanf(file, "MemTotal: %d kB\n", &kib); err != nil || kib <= 0 { // its first line
		return 0, fmt.Errorf("%s: the first line is not MemTotal", file.Name())
	}
	return kib, nil
}

// SinceBoot is the time since boot with suspends (CLOCK_BOOTTIME), as in start times.
func SinceBoot() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, fmt.Errorf("read the time since boot: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// StartTimeNow is the start time of a process that starts now; 0 if unknown.
func StartTimeNow() snapshot.StartTime {
	since, err := SinceBoot()
	if err != nil {
		return 0
	}
	return snapshot.StartTime(since / snapshot.Tick)
}

// ID identifies a process of this boot.
type ID struct {
	PID   snapshot.PID       `json:"pid"`
	Start snapshot.StartTime `json:"start"`
}

// AncestorFinder finds the ancestors of many processes in one look, and reads each once. Not for concurrent use.
type AncestorFinder struct {
	fs    FS
	limit int // ignores more ancestors: as an error, deep nesting would make an environment unknown
	seen  map[snapshot.PID]Stat
}

// NewAncestorFinder is for at most 256 ancestors of a process, far more than processes have.
func (fs FS) NewAncestorFinder() *AncestorFinder {
	return &AncestorFinder{fs: fs, limit: 256, seen: map[snapshot.PID]Stat{}}
}

// Ancestors lists the nearest first, up to PID 1 or the first process of a PID namespace. It retries if a parent ends.
// With an error, the list ends before the first unreadable ancestor.
func (f *AncestorFinder) Ancestors(of Stat) ([]ID, error) {
	const attempts = 5
	ancestors, err := f.walk(of)
	for i := 0; i < attempts && errors.Is(err, ErrGone); i++ {
		clear(f.seen) // the children of the parent that ended have another one now
		now, statErr := f.fs.Stat(of.PID)
		if statErr != nil || now.Start != of.Start {
			break
		}
		ancestors, err = f.walk(now)
	}
	if err != nil {
		return ancestors, fmt.Errorf("the parents of PID %d: %w", of.PID, err)
	}
	return ancestors, nil
}

func (f *AncestorFinder) walk(of Stat) ([]ID, error) {
	var ancestors []ID
	for at := of.PPID; at != 0 && len(ancestors) < f.limit; {
		stat, ok := f.seen[at]
		if !ok {
			var err error
			if stat, err = f.fs.Stat(at); err != nil {
				return ancestors, err
			}
			f.seen[at] = stat
		}
		ancestors = append(ancestors, ID{PID: at, Start: stat.Start})
		at = stat.PPID
	}
	return ancestors, nil
}

// Ancestors lists all ancestors of one process, or returns only an error.
func (fs FS) Ancestors(pid snapshot.PID) ([]ID, error) {
	stat, err := fs.Stat(pid)
	if err != nil {
		return nil, fmt.Errorf("the parents of PID %d: %w", pid, err)
	}
	finder := fs.NewAncestorFinder()
	finder.limit = 4096 // more is a ring of PIDs, which no kernel makes
	ancestors, err := finder.Ancestors(stat)
	if err == nil && len(ancestors) == finder.limit {
		err = fmt.Errorf("%w: PID %d has %d ancestors or more", ErrUnreadable, pid, finder.limit)
	}
	if err != nil {
		return nil, err
	}
	return ancestors, nil
}
