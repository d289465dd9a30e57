package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// ErrOverwritten comes with ErrUnreadable: the process has overwritten or hidden its environment, as for a title
// (setproctitle).
var ErrOverwritten = errors.New("the process has overwritten its environment")

// Environ looks up a variable of the environment with which the process started: a claim of its owner, of any bytes.
// found is false only if it certainly started without it. The error is ErrGone or ErrUnreadable; the latter may come
// with ErrOverwritten, ErrTooLarge and, from a ReaderProcess, ErrStalled or ErrNotRead.
func (h *Handle) Environ(key string) (value string, found bool, err error) {
	if !h.isOther() {
		return h.environ(key)
	}
	a, err := h.ask(readRequest{Read: readEnviron, Key: key}, readWithin)
	return string(a.Value), a.Found, err
}

func (h *Handle) environ(key string) (value string, found bool, err error) {
	if stat, err := h.Stat(); err == nil && stat.EnvSize > MaxEnviron {
		return "", false, fmt.Errorf("%w: PID %d: %w: %d MiB", ErrUnreadable, h.PID, ErrTooLarge, stat.EnvSize>>20)
	}
	data, err := h.environBytes()
	if err != nil {
		return "", false, h.checkGone(err)
	}
	if value, found, intact := ParseEnviron(data, key); intact {
		return value, found, nil
	}
	const attempts = 5
	// The process overwrote it, or execve(2) replaced the memory while we read.
	for range attempts {
		memory := h.openMemory()
		before, beforeErr := h.memory()
		data, err := h.environBytes()
		after, afterErr := h.memory()
		same := memoryInUse(memory) || before.Start == after.Start && before.EnvAddress == after.EnvAddress
		_ = unix.Close(memory) // it was only read
		if err != nil {
			return "", false, h.checkGone(err)
		}
		if value, found, intact := ParseEnviron(data, key); intact {
			return value, found, nil
		}
		switch {
		case beforeErr != nil || afterErr != nil:
			return "", false, h.noEnviron()
		case !same:
			continue
		case before.EnvAddress == 0 || after.EnvAddress == 0:
			return "", false, h.noEnviron()
		case after.NoEnviron && len(data) == 0:
			return "", false, nil
		}
		return "", false, fmt.Errorf("%w: %w: PID %d", ErrUnreadable, ErrOverwritten, h.PID)
	}
	return "", false, h.noEnviron()
}

// openMemory opens a file of the process's present memory, which is empty after execve(2); -1 for none.
func (h *Handle) openMemory() (fd int) {
	open := func(name string) bool {
		var err error
		if fd, err = openAt(h.dir, name, unix.O_RDONLY|unix.O_NONBLOCK); err != nil {
			return false
		}
		if !memoryInUse(fd) {
			_ = unix.Close(fd) // it was only read
			return false
		}
		return true
	}
	if open("maps") || slices.ContainsFunc(h.otherThreads(), func(of string) bool { return open(of + "maps") }) {
		return fd
	}
	return -1
}

// memoryInUse says whether the process certainly still has the memory of openMemory: it runs the same program. It may
// have moved its environment (PR_SET_MM of prctl(2)).
func memoryInUse(fd int) bool {
	n, err := uninterrupted(func() (int, error) { return unix.Pread(fd, make([]byte, 1), 0) })
	return err == nil && n > 0
}

// noEnviron is for a process without an environment, or with another one at each reading.
func (h *Handle) noEnviron() error {
	return h.checkGone(fmt.Errorf("%w: PID %d", ErrGone, h.PID))
}

func (h *Handle) environBytes() ([]byte, error) {
	data, err := h.environOf("environ")
	if len(data) > 0 {
		return data, nil
	}
	threads := h.otherThreads()
	for _, thread := range threads {
		if theirs, threadErr := h.environOf(thread + "environ"); threadErr == nil && len(theirs) > 0 {
			return theirs, nil
		}
	}
	if len(threads) > 0 && errors.Is(err, ErrGone) {
		return nil, nil // the process exists, but shows no environ
	}
	return data, err
}

// environOf returns a NUL, which isn't intact, for an environ that is longer than execve(2) allows: it was moved.
func (h *Handle) environOf(name string) ([]byte, error) {
	data, err := readAt(h.dir, name, environLimit+1)
	if err != nil {
		return nil, h.fs.classify(h.PID, err)
	}
	if len(data) > environLimit {
		return []byte{0}, nil
	}
	return data, nil
}

// memory returns the stat of the process or, if its first thread has ended, of a thread with its memory.
func (h *Handle) memory() (Stat, error) {
	stat, err := h.Stat()
	if err != nil || stat.EnvAddress != 0 {
		return stat, err
	}
	for _, thread := range h.otherThreads() {
		if of, err := h.fs.statAt(h.PID, h.dir, thread+"stat"); err == nil && of.EnvAddress != 0 {
			return of, nil
		}
	}
	return stat, nil
}

// otherThreads lists the folders of a process's threads if its first one has ended.
func (h *Handle) otherThreads() (folders []string) {
	if stat, err := h.Stat(); err != nil || stat.State != 'Z' || stat.Gone() {
		return nil
	}
	threads, _ := namesIn(h.dir, "task", -1) // without them it stays unknown
	for _, thread := range threads {
		folders = append(folders, "task/"+thread+"/")
	}
	return folders
}

// checkGone verifies an ErrGone: recent kernels also return ESRCH for a process without memory of its own, a kernel
// thread or one that has lost its first thread.
func (h *Handle) checkGone(err error) error {
	if !errors.Is(err, ErrGone) {
		return err
	}
	switch stat, statErr := h.Stat(); {
	case errors.Is(statErr, ErrUnreadable):
		return statErr
	case statErr == nil && !stat.Gone():
		return fmt.Errorf("%w: PID %d has no environment", ErrUnreadable, h.PID)
	}
	return err
}

// Environ is Handle.Environ of one process.
func (fs FS) Environ(pid snapshot.PID, key string) (value string, found bool, err error) {
	p, err := fs.Open(pid)
	if err != nil {
		return "", false, err
	}
	defer p.Close()
	return p.Environ(key)
}

// ParseEnviron looks up a variable in /proc/PID/environ, where each entry ends with a NUL. The first one counts, as for
// getenv(3). intact is false, and nothing is found, unless each entry looks like NAME=value: a title written over the
// environment may contain a "=".
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

// isName accepts more than letters: bash's functions have names such as BASH_FUNC_x%%.
func isName(name []byte) bool {
	return name[0] != '-' && !slices.ContainsFunc(name, func(c byte) bool { return c <= ' ' || c == 0x7f })
}

// NameLength is the maximum length of a command's name in bytes: TASK_COMM_LEN of include/linux/sched.h without a NUL.
const NameLength = 15

// Command is the command's name for people: that in stat or, if the kernel truncated it, its program's.
func (h *Handle) Command(stat Stat) string {
	if len(stat.Name) < NameLength || stat.IsKernelThread() {
		return stat.Name
	}
	if program := h.Program(); strings.HasPrefix(program, stat.Name) {
		return program
	}
	return stat.Name
}

// Program is the base name of the file that the process runs; "" if unreadable.
func (h *Handle) Program() string {
	path, err := h.link("exe")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(filepath.Base(path), " (deleted)")
}

// Program is Handle.Program of one process.
func (fs FS) Program(pid snapshot.PID) string {
	name, _ := with(fs, pid, func(h *Handle) (string, error) { return h.Program(), nil })
	return name
}

// IsInstalledWith says whether pid runs the file name in the folder of other's program. False may be unknown.
func (fs FS) IsInstalledWith(other snapshot.PID, name string, pid snapshot.PID) bool {
	same, err := soon(fs, pid, func() (bool, error) {
		program, err := os.Readlink(fs.path(other) + "/exe")
		runs, runsErr := os.Stat(fs.path(pid) + "/exe")
		installed, statErr := os.Stat(filepath.Join(fs.path(other), "root", filepath.Dir(program), name))
		return os.SameFile(runs, installed), errors.Join(err, runsErr, statErr)
	})
	return err == nil && same
}

// CommandLine is what the process shows: printable, at most snapshot.MaxCommand bytes; empty for none or unreadable.
func (h *Handle) CommandLine() string {
	data, _ := h.Arguments(2 * snapshot.MaxCommand) // more would be truncated
	data = bytes.ReplaceAll(bytes.TrimRight(data, "\x00"), []byte{0}, []byte{' '})
	return text.Cut(strings.TrimSpace(text.Masked(string(data))), snapshot.MaxCommand)
}

// Arguments is the beginning of /proc/PID/cmdline, where each argument ends with a NUL.
func (h *Handle) Arguments(limit int) ([]byte, error) {
	if h.isOther() {
		a, err := h.ask(readRequest{Read: readCommand, Limit: limit}, readWithin)
		return a.Value, err
	}
	return readAt(h.dir, readCommand, limit)
}
