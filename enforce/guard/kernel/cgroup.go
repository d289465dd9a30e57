package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/proc"
)

type cgroup struct {
	path string
	id   uint64 // as links report it: the folder's inode number
}

const rootID = 1

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

func cgroup2Mount(mountinfo string) (string, error) {
	for m := range proc.ParseMounts(mountinfo, " - cgroup2 ") {
		if m.Kind == "cgroup2" && m.Root == "/" {
			return unescaped.Replace(m.Point), nil
		}
	}
	return "", fmt.Errorf("%w: no cgroup2 hierarchy is mounted here, only cgroup v1 or none: "+
		"mount one with `mount -t cgroup2 none FOLDER`", ErrUnsupported)
}

var unescaped = strings.NewReplacer(`\134`, `\`, `\040`, " ", `\011`, "\t", `\012`, "\n")

// EPERM can't be a missing permission, since loading the program succeeded.
func (c cgroup) attach(program *ebpf.Program) (l bpfLink, id uint32, err error) {
	folder, err := os.Open(c.path)
	if err != nil {
		return noLink, 0, fmt.Errorf("open the cgroup: %w", err)
	}
	defer folder.Close()
	if l, err = newLink(program, folder); errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w: it has %s, or a parent of it, without BPF_F_ALLOW_MULTI: %w", ErrConflict, c.path, err)
	} else {
		err = classify("attach to "+c.path, err)
	}
	if err != nil {
		return noLink, 0, err
	}
	if id, _, err = l.facts(); err != nil {
		return noLink, 0, errors.Join(err, l.Close())
	}
	return l, id, nil
}

// Program is another program that decides about opens of devices.
type Program struct {
	ID        uint32 `json:"id"`             // as bpftool shows it
	Name      string `json:"name,omitempty"` // as its maker called it
	Cgroup    string `json:"cgroup"`         // its folder
	Exclusive bool   `json:"in_the_way"`     // it admits no guard, without BPF_F_ALLOW_MULTI
}

func (c cgroup) programs() ([]Program, error) {
	var all []Program
	for path, own := c.path, true; ; path, own = filepath.Dir(path), false {
		at, err := programsAt(path, own)
		if err != nil {
			return all, err
		}
		all = append(all, at...)
		var fs unix.Statfs_t
		if unix.Statfs(filepath.Dir(path), &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
			return all, nil
		}
	}
}

const (
	allowOverride = 1
	allowMulti    = 2
)

// programsAt lists the programs of one folder. In the guard's own folder each needs BPF_F_ALLOW_MULTI; above it, one
// that may be overridden is no obstacle.
func programsAt(path string, own bool) ([]Program, error) {
	ids, flags, err := queryPrograms(path)
	if err != nil {
		return nil, classify("list the programs at "+path, err)
	}
	exclusive := flags&allowMulti == 0 && (own || flags&allowOverride == 0)
	var list []Program
	for _, id := range ids {
		p := Program{ID: id, Cgroup: path, Exclusive: exclusive, Name: nameOf(id)}
		if p.Name != programName || exclusive {
			list = append(list, p)
		}
	}
	return list, nil
}

func nameOf(id uint32) string {
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return ""
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return ""
	}
	return info.Name
}

const maxPrograms = 64 // more than the kernel lets be attached to a cgroup

// queryPrograms is BPF_PROG_QUERY with the flags, which the library omits.
func queryPrograms(path string) (ids []uint32, flags uint32, err error) {
	folder, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("open the cgroup: %w", err)
	}
	defer folder.Close()
	ids = make([]uint32, maxPrograms)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&ids[0])
	query := struct {
		target, attachType, queryFlags, attachFlags uint32
		ids                                         uint64
		count, _                                    uint32
	}{
		target: uint32(folder.Fd()), attachType: uint32(ebpf.AttachCGroupDevice),
		ids: uint64(uintptr(unsafe.Pointer(&ids[0]))), count: maxPrograms,
	}
	if _, err := bpf(cmdProgQuery, &query); err != nil {
		return nil, 0, err
	}
	return ids[:query.count], query.attachFlags, nil
}

// bpfLink is a bpf_link: its program is attached while a descriptor or a pin of it exists. The library's link package
// probes the kernel at each start, and closes unreachable links.
type bpfLink int

const (
	cmdObjPin     = 6
	cmdObjGet     = 7
	cmdObjInfo    = 15
	cmdProgQuery  = 16
	cmdLinkCreate = 28
	cmdLinkUpdate = 29
	cmdLinkDetach = 34
)

// bpf calls bpf(2). The caller pins what attr points to.
func bpf[T any](cmd uintptr, attr *T) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, cmd, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr))
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func newLink(program *ebpf.Program, cgroup *os.File) (bpfLink, error) {
	fd, err := bpf(cmdLinkCreate, &struct{ program, target, attachType, flags uint32 }{
		program: uint32(program.FD()), target: uint32(cgroup.Fd()), attachType: uint32(ebpf.AttachCGroupDevice),
	})
	if err != nil {
		return -1, err
	}
	return bpfLink(fd), nil
}

func pinnedLink(path string) (bpfLink, error) {
	fd, err := withPath(cmdObjGet, path, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	l := bpfLink(fd)
	kind, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err == nil && !strings.Contains(kind, "bpf_link") && !strings.Contains(kind, "bpf-link") {
		err = fmt.Errorf("%s: %w: %s, expected a link", path, errNotPinned, kind)
	}
	if err != nil {
		_ = l.Close()
		return -1, err
	}
	return l, nil
}

func withPath(cmd uintptr, path string, fd int) (int, error) {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return -1, err
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(name)
	return bpf(cmd, &struct {
		path      uint64
		fd, flags uint32
	}{path: uint64(uintptr(unsafe.Pointer(name))), fd: uint32(fd)})
}

func (l bpfLink) pin(path string) error {
	_, err := withPath(cmdObjPin, path, int(l))
	return err
}

// Each open is judged by the old program or the new one.
func (l bpfLink) update(program *ebpf.Program) error {
	_, err := bpf(cmdLinkUpdate, &struct{ link, program, flags, old uint32 }{
		link:    uint32(l),
		program: uint32(program.FD()),
	})
	runtime.KeepAlive(program)
	return err
}

// Kernels before 5.9 can't detach.
func (l bpfLink) detach() error {
	_, err := bpf(cmdLinkDetach, &struct{ link uint32 }{uint32(l)})
	return err
}

// facts are the link's ID and its cgroup, 0 for a detached link.
func (l bpfLink) facts() (id uint32, cgroup uint64, err error) {
	var info struct {
		kind, id, program, _ uint32
		cgroup               uint64
		attachType, _        uint32
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&info)
	_, err = bpf(cmdObjInfo, &struct {
		fd, size uint32
		info     uint64
	}{uint32(l), uint32(unsafe.Sizeof(info)), uint64(uintptr(unsafe.Pointer(&info)))})
	const kindCgroup = 3
	switch {
	case err != nil:
		return 0, 0, classify("look at the link", err)
	case info.kind != kindCgroup, info.attachType != uint32(ebpf.AttachCGroupDevice):
		return 0, 0, fmt.Errorf("%w: the pinned link is not a guard's", errNotPinned)
	}
	return info.id, info.cgroup, nil
}

func (l bpfLink) Close() error { return unix.Close(int(l)) }
