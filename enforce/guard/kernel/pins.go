package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard"
)

// errNotPinned: there is no guard to take over, or one that can't be taken over.
var errNotPinned = errors.New("no guard is pinned")

// linkPin is the pin of the link: while it exists, the guard is attached.
func linkPin(dir string) string { return filepath.Join(dir, "link") }

// makeDir makes the folder of the pins, for its owner alone, if its parent is a bpffs.
func makeDir(dir string) error {
	if err := isBPFFS(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return classify("make "+dir, err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("the folder of the guard's pins: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is not a folder", ErrConflict, dir)
	}
	if info.Mode().Perm() != 0o700 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}

// isBPFFS says whether programs can be pinned in the folder.
func isBPFFS(dir string) error {
	var s unix.Statfs_t
	switch err := unix.Statfs(dir, &s); {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w: there is no %s", ErrNoBPFFS, dir)
	case err != nil:
		return classify("look at "+dir, err)
	case s.Type != unix.BPF_FS_MAGIC:
		return fmt.Errorf("%w at %s: mount one with `mount -t bpf bpf %s`", ErrNoBPFFS, dir, dir)
	}
	return nil
}

// takeOver continues with what is pinned in dir. errNotPinned means that there is nothing to continue with.
func takeOver(dir string, cg cgroup, major int32) (*Guard, error) {
	l, err := pinnedLink(linkPin(dir))
	switch {
	case isPassing(err):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNotPinned, err)
	}
	defer l.Close()
	facts, err := l.facts()
	if err != nil {
		return nil, err
	}
	if facts.cgroup != cg.id {
		return nil, fmt.Errorf("%w: it is attached to another cgroup", errNotPinned)
	}
	m, err := loadMaps(dir)
	switch {
	case isPassing(err):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNotPinned, err)
	}
	g := &Guard{dir: dir, cgroup: cg, linkID: facts.id, maps: m, link: noLink}
	if err = m.replaceProgram(l, major); err == nil {
		g.allowed, err = m.readAllowed()
	}
	if err != nil {
		m.close()
		return nil, err
	}
	return g, nil
}

// replaceProgram lets the link run this version's program from now on.
func (m *maps) replaceProgram(l bpfLink, major int32) error {
	program, _, err := m.load(major)
	if err != nil {
		return err
	}
	defer program.Close()
	return classify("replace the program", l.update(program))
}

// Remove ends the guard that is pinned in dir at once: everything is let through. It is the
// same as removing the folder by hand, and no error if there is none.
func Remove(dir string) error {
	dir = cmp.Or(dir, DefaultDir)
	if l, err := pinnedLink(linkPin(dir)); err == nil {
		_ = l.detach() // for processes that hold it as well; kernels before 5.9 can't
		_ = l.Close()
	}
	err := isBPFFS(dir)
	if errors.Is(err, ErrNoBPFFS) {
		return nil // nothing of ours, whatever is in it
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("remove the guard: %w", err)
	}
	return nil
}

// State reads it from the kernel. ErrRemoved means that there is no guard any more.
func (g *Guard) State() (guard.KernelState, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.attached(); err != nil {
		return guard.KernelState{}, err
	}
	return g.maps.state(g.dir)
}

// Inspect reads what is pinned and changes nothing: for a process that only looks. ErrRemoved means that no guard is
// pinned.
func Inspect(dir string) (guard.KernelState, error) {
	dir = cmp.Or(dir, DefaultDir)
	l, err := pinnedLink(linkPin(dir))
	if err != nil {
		return guard.KernelState{}, inspectError(err)
	}
	defer l.Close()
	facts, err := l.facts()
	switch {
	case err != nil:
		return guard.KernelState{}, err
	case facts.cgroup == 0:
		return guard.KernelState{}, fmt.Errorf("%w: it is pinned, but its cgroup is gone", guard.ErrRemoved)
	}
	m, err := loadMaps(dir)
	if err != nil {
		return guard.KernelState{}, inspectError(err)
	}
	defer m.close()
	return m.state(dir)
}

func (m *maps) state(dir string) (guard.KernelState, error) {
	control, err := m.readControl()
	if err != nil {
		return guard.KernelState{}, err
	}
	s := guard.KernelState{Control: control, Dir: dir}
	if s.Allowed, err = m.readAllowed(); err != nil {
		return guard.KernelState{}, err
	}
	if err := m.lost.Lookup(uint32(0), &s.Lost); err != nil {
		return guard.KernelState{}, fmt.Errorf("read how many events were lost: %w", err)
	}
	return s, nil
}

// inspectError says whether there is no guard, or whether it can't be read.
func inspectError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w, or never was there: %w", guard.ErrRemoved, err)
	}
	return classify("read the pinned guard", err)
}
