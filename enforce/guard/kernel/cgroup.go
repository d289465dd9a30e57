package kernel

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// cgroup is the folder that is guarded.
type cgroup struct {
	path string
	id   uint64 // as links report it: the folder's inode number
}

// rootID is the ID of a hierarchy's root.
const rootID = 1

// findCgroup looks at the folder, or finds the root of the cgroup2 hierarchy.
func findCgroup(path string) (cgroup, error) {
	if path == "" {
		mounts, err := os.Open("/proc/self/mountinfo")
		if err != nil {
			return cgroup{}, fmt.Errorf("find cgroup2: %w", err)
		}
		defer mounts.Close()
		if path, err = cgroup2Mount(mounts); err != nil {
			return cgroup{}, err
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return cgroup{}, fmt.Errorf("look at the cgroup %s: %w", path, err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return cgroup{}, fmt.Errorf("%w: %s is not in a cgroup2 hierarchy", ErrUnsupported, path)
	}
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return cgroup{}, fmt.Errorf("look at the cgroup %s: %w", path, err)
	}
	return cgroup{path: path, id: s.Ino}, nil
}

// cgroup2Mount finds in the text of /proc/PID/mountinfo where the root of the cgroup2
// hierarchy is mounted: at /sys/fs/cgroup, or next to cgroup v1 in a folder of its own.
func cgroup2Mount(mountinfo io.Reader) (string, error) {
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		// ID, parent, device, root, mount point, options …, "-", type, source, options
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if len(fields) < 5 || fields[3] != "/" || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		return unescapeMount(fields[4]), nil
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("read mountinfo: %w", err)
	}
	return "", fmt.Errorf("%w: no cgroup2 hierarchy is mounted here, only cgroup v1 or none: "+
		"mount one with `mount -t cgroup2 none FOLDER`", ErrUnsupported)
}

// unescapeMount replaces the octal escapes of blanks and the like.
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// attach attaches the program next to others; their verdicts count as well. The program is
// in the kernel already, so EPERM can't be a missing permission.
func (c cgroup) attach(program *ebpf.Program) (l bpfLink, id uint32, err error) {
	folder, err := os.Open(c.path)
	if err != nil {
		return noLink, 0, fmt.Errorf("open the cgroup: %w", err)
	}
	defer folder.Close()
	l, err = newLink(program, folder)
	switch {
	case errors.Is(err, unix.EPERM):
		return noLink, 0, fmt.Errorf("%w: it holds %s, or a parent of it, without BPF_F_ALLOW_MULTI: %w", ErrConflict, c.path, err)
	case err != nil:
		return noLink, 0, classify("attach to "+c.path, err)
	}
	facts, err := l.facts()
	if err != nil {
		return noLink, 0, errors.Join(err, l.Close())
	}
	return l, facts.id, nil
}
