package proc

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// NameLength is the maximum length of a command's name in the kernel, in bytes:
// TASK_COMM_LEN of include/linux/sched.h, without the NUL at the end.
const NameLength = 15

// Command is the name of the command for people: that in stat, which the process may
// change, or the full name of its program if the kernel has truncated that one.
func (h *Handle) Command(stat Stat) string {
	if len(stat.Name) < NameLength || stat.IsKernelThread() {
		return stat.Name
	}
	if program := h.Program(); strings.HasPrefix(program, stat.Name) {
		return program
	}
	return stat.Name
}

// Program is the base name of the file that the process runs, or "" if it can't be read.
func (h *Handle) Program() string {
	path, err := h.link("exe")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(filepath.Base(path), " (deleted)")
}

// Program is the base name of the file that one process runs, or "" if it can't be read.
func (fs FS) Program(pid snapshot.PID) string {
	name, _ := with(fs, pid, func(h *Handle) (string, error) { return h.Program(), nil })
	return name
}

// IsInstalledWith says whether a process runs the file with a name in the folder of the program of another one, as that
// one sees it. False is also unknown.
func (fs FS) IsInstalledWith(other snapshot.PID, name string, pid snapshot.PID) bool {
	same, err := soon(fs, pid, func() (bool, error) {
		program, err := os.Readlink(fs.path(other) + "/exe")
		runs, runsErr := os.Stat(fs.path(pid) + "/exe")
		installed, statErr := os.Stat(filepath.Join(fs.path(other), "root", filepath.Dir(program), name))
		return os.SameFile(runs, installed), errors.Join(err, runsErr, statErr)
	})
	return err == nil && same
}

// CommandLine is the command line for people: printable, with spaces between the arguments, truncated to
// snapshot.MaxCommand bytes. The process may have overwritten it. It is empty if there is none or it can't be read.
func (h *Handle) CommandLine() string {
	data, _ := h.Arguments(2 * snapshot.MaxCommand) // more would be truncated
	data = bytes.ReplaceAll(bytes.TrimRight(data, "\x00"), []byte{0}, []byte{' '})
	return text.Cut(strings.TrimSpace(text.Masked(string(data))), snapshot.MaxCommand)
}

// Arguments is the beginning of /proc/PID/cmdline: each argument ends with a NUL. It is empty if there is none.
func (h *Handle) Arguments(limit int) ([]byte, error) {
	if h.isOther() {
		a, err := h.ask(readRequest{Read: readCommand, Limit: limit}, readWithin)
		return a.Value, err
	}
	return readAt(h.dir, readCommand, limit)
}
