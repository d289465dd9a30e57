package proc

import (
	"path/filepath"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// NameLength is how many bytes the kernel keeps of a command's name:
// TASK_COMM_LEN of include/linux/sched.h, less the NUL at the end.
const NameLength = 15

// Command is the name of the command, for people to read: the one in stat, which the
// process may change, or, where the kernel has cut that one, the whole name of
// the program it runs, if it can be seen.
func (h *Handle) Command(stat Stat) string {
	if len(stat.Name) < NameLength || stat.IsKernelThread() {
		return stat.Name
	}
	if program := h.Program(); strings.HasPrefix(program, stat.Name) {
		return program
	}
	return stat.Name
}

// Program is the name of the file that the process runs, without its folders;
// "" where that is not to be seen.
func (h *Handle) Program() string {
	path, err := h.link("exe")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(filepath.Base(path), " (deleted)")
}

// Program is the name of the file that one process runs; "" where that is not
// to be seen, or where there is no such process.
func (fs FS) Program(pid snapshot.PID) string {
	p, err := fs.Open(pid)
	if err != nil {
		return ""
	}
	defer func() { _ = p.Close() }() // it was only read
	return p.Program()
}
