package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/proc"
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
		mounts, err := proc.FS{}.Mounts()
		if err != nil {
			return cgroup{}, fmt.Errorf("find cgroup2: %w", err)
		}
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
func cgroup2Mount(mountinfo string) (string, error) {
	for m := range proc.ParseMounts(mountinfo, " - cgroup2 ") {
		if m.Kind == "cgroup2" && m.Root == "/" {
			return unescaped.Replace(m.Point), nil
		}
	}
	return "", fmt.Errorf("%w: no cgroup2 hierarchy is mounted here, only cgroup v1 or none: "+
		"mount one with `mount -t cgroup2 none FOLDER`", ErrUnsupported)
}

// unescaped undoes how mountinfo writes paths.
var unescaped = strings.NewReplacer(`\134`, `\`, `\040`, " ", `\011`, "\t", `\012`, "\n")

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
		return noLink, 0, fmt.Errorf("%w: it holds %s, or a parent of it, without BPF_F_ALLOW_MULTI: %w", ErrConflict,
			c.path, err)
	case err != nil:
		return noLink, 0, classify("attach to "+c.path, err)
	}
	facts, err := l.facts()
	if err != nil {
		return noLink, 0, errors.Join(err, l.Close())
	}
	return l, facts.id, nil
}
