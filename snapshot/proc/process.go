package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/seed-3119e985/genv/snapshot"
)

var (
	// ErrGone says that there is no such process any more: it has ended.
	ErrGone = errors.New("the process has ended")
	// ErrUnreadable says that the process may well be there, but the kernel
	// does not show this of it. Conclude nothing.
	ErrUnreadable = errors.New("the process cannot be read")
)

// Most of /proc is shorter than a page; an environ is at most what execve(2)
// lets in: 6 MiB for arguments and environment together.
const (
	smallLimit   = 64 << 10
	environLimit = 8 << 20
)

// FS is a mounted /proc.
type FS struct {
	// Root is where it is mounted; empty means /proc.
	Root string
}

func (fs FS) root() string {
	if fs.Root == "" {
		return "/proc"
	}
	return fs.Root
}

// Process is a process that was there when Open found it. It is not safe for
// concurrent use.
type Process struct {
	PID snapshot.PID
	dir *os.Root
}

// Open takes hold of a process. Its error is ErrGone or ErrUnreadable.
func (fs FS) Open(pid snapshot.PID) (*Process, error) {
	if pid <= 0 {
		return nil, fmt.Errorf("%w: %d is no PID", ErrGone, pid)
	}
	dir, err := os.OpenRoot(filepath.Join(fs.root(), strconv.Itoa(int(pid))))
	if err != nil {
		return nil, fs.classify(pid, err)
	}
	return &Process{PID: pid, dir: dir}, nil
}

// Close lets go of the process.
func (p *Process) Close() error { return p.dir.Close() }

// read returns a file of the process, at most limit bytes of it.
func (p *Process) read(name string, limit int64) ([]byte, error) {
	data, err := p.slurp(name, limit)
	if err != nil {
		return nil, classify(p.PID, err)
	}
	return data, nil
}

func (p *Process) slurp(name string, limit int64) ([]byte, error) {
	f, err := p.dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	// Most of it comes with one call, where io.ReadAll would need several.
	data := bytes.NewBuffer(make([]byte, 0, 2<<10))
	_, err = data.ReadFrom(io.LimitReader(f, limit+1))
	if err == nil && int64(data.Len()) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", name, limit)
	}
	return data.Bytes(), err
}

// classify is classify for the folder of a process: where /proc is mounted
// with hidepid=2, a process of somebody else is as absent as one that ended.
// PID 1 always runs, so if it is absent too, absence says nothing.
func (fs FS) classify(pid snapshot.PID, err error) error {
	err = classify(pid, err)
	if !errors.Is(err, ErrGone) {
		return err
	}
	if _, statErr := os.Stat(filepath.Join(fs.root(), "1")); statErr != nil {
		return fmt.Errorf("%w: PID %d: %s hides the processes of others (hidepid); run it as root", ErrUnreadable, pid, fs.root())
	}
	return err
}

// classify tells "gone" from "not to be seen".
func classify(pid snapshot.PID, err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%w: PID %d", ErrGone, pid)
	}
	return fmt.Errorf("%w: PID %d: %w", ErrUnreadable, pid, err)
}
