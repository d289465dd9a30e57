package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Errors by what the caller does about them.
var (
	// ErrUnsupported: this kernel, or this container, lacks what the guard needs. That
	// stays so until a reboot: enforce by polling.
	ErrUnsupported = errors.New("the kernel guard is not supported here")
	// ErrPermission: this process may not load or pin BPF programs. Run it as root.
	ErrPermission = errors.New("no permission for the kernel guard")
	// ErrNoBPFFS: there is no bpffs to pin the guard in. Mount one, or use Options.Unpinned.
	ErrNoBPFFS = errors.New("no bpffs")
	// ErrConflict: another program holds the cgroup, or a parent of it, for itself alone.
	// Remove that program, or enforce by polling.
	ErrConflict = errors.New("another program is in the way of the kernel guard")
)

// classify gives an error of bpf(2) its class. Root without CAP_BPF, and a kernel that is
// locked down, answer with EPERM.
func classify(what string, err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %s: %w", ErrPermission, what, err)
	case isPassing(err), errors.Is(err, os.ErrClosed):
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrUnsupported, what, err)
}

// isPassing says whether an error is about what this process or the machine lacks at the
// moment: it says nothing about the guard.
func isPassing(err error) bool {
	for _, passing := range []error{unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EINTR} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}
