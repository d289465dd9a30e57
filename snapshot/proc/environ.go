package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// Environ looks a variable up in /proc/PID/environ, which is what the process
// was started with: what it set or unset later is not there, and its owner
// wrote it, so it is a claim and not a proof. The value is raw bytes.
//
// found is false only when it is certain that the process was started without
// the variable. An environ that shows nothing says nothing, since kernel
// threads, zombies and programs that write their title over it (setproctitle)
// have such a one: that is ErrUnreadable, as is one that belongs to somebody
// else. But a process that was started with an empty environment, as by
// `env -i`, is told by Stat.NoEnviron. A process that ended is ErrGone.
func (p *Process) Environ(key string) (value string, found bool, err error) {
	data, err := p.readEnviron()
	if err != nil {
		return "", false, p.reallyGone(err)
	}
	value, found, told := ParseEnviron(data, key)
	if told {
		return value, found, nil
	}
	if stat, err := p.Stat(); err == nil && len(data) == 0 && stat.NoEnviron && !stat.Gone() {
		return "", false, nil
	}
	return "", false, fmt.Errorf("%w: the environment of PID %d is empty or overwritten", ErrUnreadable, p.PID)
}

// readEnviron reads the environ of the process, or of a thread of it: once the
// first thread has ended the process shows none of its own, and others may run
// on for ever.
func (p *Process) readEnviron() ([]byte, error) {
	data, err := p.read("environ", environLimit)
	if len(data) > 0 {
		return data, nil
	}
	if stat, statErr := p.Stat(); statErr != nil || stat.State != 'Z' || stat.Gone() {
		return data, err
	}
	threads, listErr := p.threads()
	if listErr != nil {
		return data, err
	}
	for _, thread := range threads {
		if theirs, threadErr := p.read("task/"+thread+"/environ", environLimit); threadErr == nil && len(theirs) > 0 {
			return theirs, nil
		}
	}
	return data, err
}

// threads lists the ids of the process's threads.
func (p *Process) threads() ([]string, error) {
	fd, err := openAt(p.dir, "task", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), "task")
	defer func() { _ = dir.Close() }() // it was only read
	return dir.Readdirnames(-1)
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
// as it does for getenv(3). told is false when the variable is not there and
// the content does not begin as an environment does: with nothing but NULs, or
// with the end of a title, a program has written over it.
func ParseEnviron(data []byte, key string) (value string, found, told bool) {
	prefix := []byte(key + "=")
	for first := true; len(data) > 0; {
		entry, rest, _ := bytes.Cut(data, []byte{0})
		data = rest
		if first && len(entry) > 0 {
			first = false
			told = bytes.IndexByte(entry, '=') > 0
		}
		if v, ok := bytes.CutPrefix(entry, prefix); ok {
			return string(v), true, true
		}
	}
	return "", false, told
}
