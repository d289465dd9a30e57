package kernel

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// bpfLink is a bpf_link: while a descriptor or a pin of it exists, the program is attached. The library's own link
// package asks the kernel for features whenever a program that imports it starts, and its links are closed when they
// become unreachable. This one is closed by Close alone.
type bpfLink int

// linkFacts is what the kernel says about a link.
type linkFacts struct {
	id     uint32
	cgroup uint64 // 0 for a link that is detached
}

// The commands of bpf(2) that are used here.
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

// newLink attaches the program to the cgroup, next to other programs.
func newLink(program *ebpf.Program, cgroup *os.File) (bpfLink, error) {
	fd, err := bpf(cmdLinkCreate, &struct{ program, target, attachType, flags uint32 }{
		program: uint32(program.FD()), target: uint32(cgroup.Fd()), attachType: uint32(ebpf.AttachCGroupDevice),
	})
	if err != nil {
		return -1, err
	}
	return bpfLink(fd), nil
}

// pinnedLink opens the link that is pinned at the path.
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

// withPath pins a descriptor at the path, or opens what is pinned there.
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

// pin keeps the link, whatever becomes of its descriptors.
func (l bpfLink) pin(path string) error {
	_, err := withPath(cmdObjPin, path, int(l))
	return err
}

// update replaces the program; every open is judged by the old one or by the new one.
func (l bpfLink) update(program *ebpf.Program) error {
	_, err := bpf(cmdLinkUpdate, &struct{ link, program, flags, old uint32 }{
		link:    uint32(l),
		program: uint32(program.FD()),
	})
	runtime.KeepAlive(program)
	return err
}

// detach ends what the link does, no matter who holds it. Kernels before 5.9 can't.
func (l bpfLink) detach() error {
	_, err := bpf(cmdLinkDetach, &struct{ link uint32 }{uint32(l)})
	return err
}

func (l bpfLink) facts() (linkFacts, error) {
	var info struct {
		kind, id, program, _ uint32
		cgroup               uint64
		attachType, _        uint32
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&info)
	_, err := bpf(cmdObjInfo, &struct {
		fd, size uint32
		info     uint64
	}{uint32(l), uint32(unsafe.Sizeof(info)), uint64(uintptr(unsafe.Pointer(&info)))})
	const kindCgroup = 3
	switch {
	case err != nil:
		return linkFacts{}, classify("look at the link", err)
	case info.kind != kindCgroup, info.attachType != uint32(ebpf.AttachCGroupDevice):
		return linkFacts{}, fmt.Errorf("%w: the pinned link is not a guard's", errNotPinned)
	}
	return linkFacts{id: info.id, cgroup: info.cgroup}, nil
}

// Close closes the descriptor.
func (l bpfLink) Close() error { return unix.Close(int(l)) }
