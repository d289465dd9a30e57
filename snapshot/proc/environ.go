package proc

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// Environ looks a variable up in /proc/PID/environ, which is what the process
// was started with: what it set or unset later is not there, and its owner
// wrote it, so it is a claim and not a proof. The value is raw bytes.
//
// found is false only when the environment was read and the variable is not in
// it. An empty environ says nothing (kernel threads, zombies and programs that
// write their title over it have one): that is ErrUnreadable, as is one that
// belongs to somebody else. A process that ended is ErrGone.
func (p *Process) Environ(key string) (value string, found bool, err error) {
	data, err := p.read("environ", environLimit)
	if err != nil {
		return "", false, p.reallyGone(err)
	}
	value, found, told := ParseEnviron(data, key)
	if !told {
		return "", false, fmt.Errorf("%w: the environment of PID %d is empty", ErrUnreadable, p.PID)
	}
	return value, found, nil
}

// reallyGone doubts an ErrGone of environ: recent kernels say ESRCH there for
// whatever has no memory of its own, such as a kernel thread, or a process
// whose first thread has ended while others run.
func (p *Process) reallyGone(err error) error {
	if !errors.Is(err, ErrGone) {
		return err
	}
	if stat, statErr := p.Stat(); statErr == nil && !stat.Gone() {
		return fmt.Errorf("%w: PID %d has no environment", ErrUnreadable, p.PID)
	}
	return err
}

// Environ looks a variable up in the environment of one process.
func (fs FS) Environ(pid snapshot.PID, key string) (value string, found bool, err error) {
	p, err := fs.Open(pid)
	if err != nil {
		return "", false, err
	}
	defer func() { _ = p.Close() }() // it was only read
	return p.Environ(key)
}

// ParseEnviron looks a variable up in the content of /proc/PID/environ: entries
// that end with a NUL, of any bytes, some without "=". The first entry counts,
// as it does for getenv(3). told is false when there is no entry at all, which
// a program that wrote its title over its environment leaves behind.
func ParseEnviron(data []byte, key string) (value string, found, told bool) {
	prefix := []byte(key + "=")
	for len(data) > 0 {
		entry, rest, _ := bytes.Cut(data, []byte{0})
		data = rest
		told = told || len(entry) > 0
		if v, ok := bytes.CutPrefix(entry, prefix); ok {
			return string(v), true, true
		}
	}
	return "", false, told
}
