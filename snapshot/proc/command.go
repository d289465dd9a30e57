package proc

import (
	"path/filepath"
	"strings"
)

// commLength is how many bytes of a name the kernel keeps (TASK_COMM_LEN less
// the NUL at the end).
const commLength = 15

// Command is the name of the command, for people to read: the one in stat, which the
// process may change, or, where the kernel has cut that one, the whole name of
// the program it runs, if it can be seen.
func (p *Process) Command(stat Stat) string {
	if len(stat.Name) < commLength || stat.IsKernelThread() {
		return stat.Name
	}
	program, err := p.dir.Readlink("exe")
	if err != nil {
		return stat.Name
	}
	name := strings.TrimSuffix(filepath.Base(program), " (deleted)")
	if !strings.HasPrefix(name, stat.Name) {
		return stat.Name
	}
	return name
}
