package proc

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// Stall is what holds the memory of a process, as far as the kernel shows that to root.
type Stall struct {
	// FUSE says that a thread changes its memory and waits for FUSE; Network, for a network file system.
	FUSE, Network bool
	// Mounter mounted all FUSE file systems that the process sees; nil for none, or if others did, too.
	Mounter *snapshot.UID
}

// Stall finds out what holds the memory of the process, which counts for owner (see OwnerOfUID). It is zero if that
// isn't known, or if the Quota is used up: users can have many threads and mounts.
func (h *Handle) Stall(owner snapshot.UID, rootless bool) (s Stall) {
	if h.Quota.left(maxStallTime) == 0 {
		return s
	}
	defer h.Quota.spend()()
	for _, stack := range h.stacks() {
		s.FUSE = s.FUSE || changesMemory(stack) && strings.Contains(stack, "] fuse_")
		for _, name := range []string{"] nfs", "] rpc_", "] ceph_", "] cifs_", "] smb2_", "] ll_", "] gpfs"} {
			s.Network = s.Network || strings.Contains(stack, name)
		}
	}
	if s.FUSE {
		s.Mounter = h.mounter(owner, rootless)
	}
	return s
}

// changesMemory says whether a kernel's stack is that of a thread that changes, or faults in, its memory.
func changesMemory(stack string) bool {
	return slices.ContainsFunc([]string{"mmap", "munmap", "vma", "fault"},
		func(name string) bool { return strings.Contains(stack, name) })
}

// Limits of what is read of a stalled process.
const (
	maxStacks     = 1024
	maxMountBytes = 256 << 10
)

// stacks are what the threads of the process do in the kernel.
func (h *Handle) stacks() []string {
	stacks, _ := soon(h.fs, h.PID, func() (stacks []string, err error) {
		threads, err := namesIn(h.dir, "task", maxStacks)
		for _, thread := range threads {
			if stack, err := readAt(h.dir, "task/"+thread+"/stack", smallLimit); err == nil {
				stacks = append(stacks, string(stack))
			}
		}
		return stacks, err
	})
	return stacks
}

// mounter is Stall.Mounter. What isn't mounted in our namespace is the owner's if the process is rootless.
func (h *Handle) mounter(owner snapshot.UID, rootless bool) *snapshot.UID {
	read := func(dir int, name string) (map[string]snapshot.UID, error) {
		data, err := soon(h.fs, h.PID, func() ([]byte, error) { return readAt(dir, name, maxMountBytes) })
		if len(data) == maxMountBytes {
			err = errSpent
		}
		return fuseMounts(data), err
	}
	theirs, err := read(h.dir, "mountinfo")
	ours, oursErr := read(unix.AT_FDCWD, h.fs.root()+"/self/mountinfo")
	if err != nil || oursErr != nil || len(theirs) == 0 {
		return nil
	}
	for device := range theirs {
		uid, shared := ours[device]
		uid, _ = h.fs.Account(uid)
		if !shared && !rootless || shared && uid != owner {
			return nil
		}
	}
	return &owner
}

// fuseMounts are the FUSE file systems in /proc/PID/mountinfo by device, with the users who mounted them.
func fuseMounts(mountinfo []byte) map[string]snapshot.UID {
	mounts := map[string]snapshot.UID{}
	for m := range ParseMounts(string(mountinfo), " - fuse") {
		if kind, _, _ := strings.Cut(m.Kind, "."); kind != "fuse" && kind != "fuseblk" {
			continue
		}
		mounts[m.Device] = 0
		for option := range strings.SplitSeq(m.Options, ",") {
			if text, ok := strings.CutPrefix(option, "user_id="); ok {
				uid, _ := strconv.ParseUint(text, 10, 32) // the kernel writes it
				mounts[m.Device] = snapshot.UID(uid)
			}
		}
	}
	return mounts
}

// WaitsForFUSE says whether a thread waits for a FUSE server: signals don't end it before that answers or ends.
func (fs FS) WaitsForFUSE(pid snapshot.PID) bool {
	stacks, _ := with(fs, pid, func(h *Handle) ([]string, error) { return h.stacks(), nil })
	return slices.ContainsFunc(stacks, func(stack string) bool {
		return strings.Contains(stack, "] fuse_") || strings.Contains(stack, "] request_wait_answer")
	})
}
