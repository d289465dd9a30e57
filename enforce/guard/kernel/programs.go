package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Program is another program that judges opens of devices.
type Program struct {
	ID     uint32 `json:"id"`             // as bpftool shows it
	Name   string `json:"name,omitempty"` // as its maker called it
	Cgroup string `json:"cgroup"`         // its folder
	// Exclusive says that it admits no guard: it has no BPF_F_ALLOW_MULTI.
	Exclusive bool `json:"in_the_way"`
}

// programs lists the programs of others at the cgroup and above it.
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

// The flags of bpf(2) for cgroups.
const (
	allowOverride = 1
	allowMulti    = 2
)

// programsAt lists the programs of one folder. At the guard's own one each must have been
// attached with BPF_F_ALLOW_MULTI; above it, one that may be overridden isn't an obstacle.
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

// maxPrograms is more than the kernel lets anybody attach to a cgroup.
const maxPrograms = 64

// queryPrograms is BPF_PROG_QUERY, with the flags that the library leaves out.
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
