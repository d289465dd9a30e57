package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// ErrOverwritten says that a process overwrote the environment that it was
// started with, as programs do that set a title (setproctitle), or hid it. It
// comes with ErrUnreadable: what was there is unknown.
var ErrOverwritten = errors.New("the process has overwritten its environment")

// Environ looks a variable up in /proc/PID/environ, which is what the process
// was started with: what it set or unset later is not there, and its owner
// wrote it, so it is a claim and not a proof. The value is raw bytes.
//
// found is false only when it is certain that the process was started without
// the variable. An environ that is not intact (see ParseEnviron) says nothing:
// that is ErrUnreadable, as is one that belongs to somebody else, or that of a
// kernel thread. It is ErrOverwritten as well if the process has memory of its
// own, which we may read, and the environment in it is not intact. A process
// that was started with an empty environment, as by `env -i`, is recognized by
// Stat.NoEnviron. A process that ended is ErrGone.
func (h *Handle) Environ(key string) (value string, found bool, err error) {
	data, err := h.readEnviron()
	if err != nil {
		return "", false, h.reallyGone(err)
	}
	if value, found, intact := ParseEnviron(data, key); intact {
		return value, found, nil
	}
	// It is not intact, or execve(2) replaced the memory while we read.
	for range attempts {
		memory := h.holdMemory()
		before, beforeErr := h.memory()
		data, err := h.readEnviron()
		after, afterErr := h.memory()
		same := memory.release() || before.image() == after.image()
		if err != nil {
			return "", false, h.reallyGone(err)
		}
		if value, found, intact := ParseEnviron(data, key); intact {
			return value, found, nil
		}
		switch {
		case beforeErr != nil || afterErr != nil:
			return "", false, h.noEnviron()
		case !same:
			continue
		case !before.hasMemory() || !after.hasMemory():
			return "", false, h.noEnviron()
		case after.NoEnviron && len(data) == 0:
			return "", false, nil
		}
		return "", false, fmt.Errorf("%w: %w: PID %d", ErrUnreadable, ErrOverwritten, h.PID)
	}
	return "", false, h.noEnviron()
}

// heldMemory is a file of /proc that belongs to the memory that a process had
// when it was opened: it is empty once execve(2) has replaced that memory.
type heldMemory int

// holdMemory opens a heldMemory, of a thread if the first one has ended.
func (h *Handle) holdMemory() heldMemory {
	names := []string{"maps"}
	threads, _ := h.otherThreads()
	for _, thread := range threads {
		names = append(names, "task/"+thread+"/maps")
	}
	for _, name := range names {
		fd, err := openAt(h.dir, name, unix.O_RDONLY|unix.O_NONBLOCK)
		if err != nil {
			continue
		}
		if held := heldMemory(fd); held.inUse() {
			return held
		}
		_ = unix.Close(fd) // it was only read
	}
	return -1
}

// inUse says whether it is certain that a process still has the memory.
func (m heldMemory) inUse() bool {
	n, err := uninterrupted(func() (int, error) { return unix.Pread(int(m), make([]byte, 1), 0) })
	return err == nil && n > 0
}

// release says whether the memory is still in use, and closes it. If it is, the
// process ran one program all along, wherever it moved its environment meanwhile
// (PR_SET_MM of prctl(2)).
func (m heldMemory) release() bool {
	if m < 0 {
		return false
	}
	defer func() { _ = unix.Close(int(m)) }() // it was only read
	return m.inUse()
}

// noEnviron is the error of a process that shows no environment, or a different
// one each time.
func (h *Handle) noEnviron() error {
	return h.reallyGone(fmt.Errorf("%w: PID %d", ErrGone, h.PID))
}

// readEnviron reads the environ of the process, or of a thread of it: once the
// first thread has ended the process shows none of its own, and others may run
// on for ever.
func (h *Handle) readEnviron() ([]byte, error) {
	data, err := h.environOf("environ")
	if len(data) > 0 {
		return data, nil
	}
	threads, _ := h.otherThreads()
	for _, thread := range threads {
		if theirs, threadErr := h.environOf("task/" + thread + "/environ"); threadErr == nil && len(theirs) > 0 {
			return theirs, nil
		}
	}
	if len(threads) > 0 && errors.Is(err, ErrGone) {
		return nil, nil // the process exists, but shows no environ
	}
	return data, err
}

// environOf reads an environ. One that is longer than execve(2) lets in was moved
// by its process (PR_SET_MM of prctl(2)): it is not intact, which is a NUL here.
func (h *Handle) environOf(name string) ([]byte, error) {
	data, err := readAt(h.dir, name, environLimit+1)
	if err != nil {
		return nil, classify(h.PID, err)
	}
	if len(data) > environLimit {
		return []byte{0}, nil
	}
	return data, nil
}

// memory is the stat of the process, or of a thread that still has the
// process's memory if the first thread has ended.
func (h *Handle) memory() (Stat, error) {
	stat, err := h.Stat()
	if err != nil || stat.hasMemory() {
		return stat, err
	}
	threads, _ := h.otherThreads()
	for _, thread := range threads {
		if of, err := h.statOf("task/" + thread + "/stat"); err == nil && of.hasMemory() {
			return of, nil
		}
	}
	return stat, nil
}

// otherThreads are the threads of a process the first thread of which has
// ended; none of any other process.
func (h *Handle) otherThreads() ([]string, error) {
	stat, err := h.Stat()
	if err != nil || stat.State != 'Z' || stat.Gone() {
		return nil, err
	}
	fd, err := openAt(h.dir, "task", unix.O_RDONLY|unix.O_DIRECTORY)
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
func (h *Handle) reallyGone(err error) error {
	if !errors.Is(err, ErrGone) {
		return err
	}
	if stat, statErr := h.Stat(); statErr == nil && !stat.Gone() {
		return fmt.Errorf("%w: PID %d has no environment", ErrUnreadable, h.PID)
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
// of any bytes, each of which ends with a NUL. The first entry with the name
// counts, as it does for getenv(3).
//
// intact is false, and nothing is found, unless each entry looks like
// NAME=value. A program that sets a title writes it over its environment and
// fills the rest with NULs: the title may hold a "=" ("n.py --lr=1"), and what
// looks like our variable behind it may be a piece of anything. execve(2) takes
// any text as an entry, but people who have one without "=", or with a space in
// its name, are rare, and then it is only unknown.
func ParseEnviron(data []byte, key string) (value string, found, intact bool) {
	if len(data) == 0 || data[len(data)-1] != 0 {
		return "", false, false
	}
	for len(data) > 0 {
		end := bytes.IndexByte(data, 0)
		entry := data[:end]
		data = data[end+1:]
		equals := bytes.IndexByte(entry, '=')
		if equals <= 0 || !isName(entry[:equals]) {
			return "", false, false
		}
		if !found && string(entry[:equals]) == key {
			value, found = string(entry[equals+1:]), true
		}
	}
	return value, found, true
}

// isName says whether a variable may have this name: bash's functions
// (BASH_FUNC_x%%) and names with dots, dashes or parentheses are in use, but no
// spaces, and nothing that begins as an option does.
func isName(name []byte) bool {
	if name[0] == '-' {
		return false
	}
	for _, c := range name {
		if c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}
