package proctest

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmMap is struct prctl_mm_map of linux/prctl.h.
type mmMap struct {
	startCode, endCode, startData, endData, startBrk, brk, startStack uint64
	argStart, argEnd, envStart, envEnd                                uint64
	auxv                                                              uint64
	auxvSize, exeFD                                                   uint32
}

// EnvironMover returns a function that moves this process's environment to another place
// each time, where the memory is empty. It uses PR_SET_MM_MAP of prctl(2), which needs no
// privilege. The error is that of a kernel without it.
func EnvironMover() (move func() error, err error) {
	field, err := stat()
	if err != nil {
		return nil, err
	}
	const room, size = 1 << 20, 4096
	empty, err := unix.Mmap(-1, 0, room, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	brk, _, _ := unix.Syscall(unix.SYS_BRK, 0, 0, 0)
	m := &mmMap{
		startCode: field(26), endCode: field(27), startStack: field(28), startData: field(45), endData: field(46),
		startBrk: field(47), brk: uint64(brk), argStart: field(48), argEnd: field(49), exeFD: ^uint32(0),
	}
	from := uint64(uintptr(unsafe.Pointer(&empty[0])))
	step := uint64(0)
	move = func() error {
		step = (step + 64) % (room - size)
		m.envStart, m.envEnd = from+step, from+step+size
		return unix.Prctl(unix.PR_SET_MM, unix.PR_SET_MM_MAP, uintptr(unsafe.Pointer(m)), unsafe.Sizeof(*m), 0)
	}
	return move, move()
}
