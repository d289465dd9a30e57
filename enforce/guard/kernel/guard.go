// Package kernel is the guard inside the kernel: a BPF program at the root of cgroup2 that denies, or only reports, a
// user's open of a device. It knows minors and uids; package guard decides who may use what, and for how long.
//
// The program allows an open unless all of this is certain: it opens a guarded NVIDIA device node (character device,
// major 195), the lease has not ended, the process's real uid is an ordinary user's, and that uid has no permission for
// the minor. Other nodes of the driver (nvidiactl, nvidia-modeset, nvidia-uvm, nvidia-caps) and mknod(2) are never
// denied. Open descriptors stay usable.
//
// The program and its maps are pinned in a bpffs, and outlive the process until the lease ends; the next process takes
// them over without a gap. Probe says what a kernel lacks; Open then fails with ErrUnsupported.
//
//	g, err := kernel.Open(kernel.Location{})
//	err = g.SetMinors(guarded)
//	err = g.SetAllowed(map[snapshot.UID]guard.Minors{1001: guard.MinorsOf(0, 3)})
//	err = g.SetControl(guard.Control{Mode: guard.Enforce, Lease: time.Minute, FirstUID: 1000})
//	err = g.Events(ctx, func(o guard.DeviceOpen) { … })
//	err = g.Close() // the guard stays until the lease ends; Remove ends it now
package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// DefaultDir is the default folder of the pins.
const DefaultDir = "/sys/fs/bpf/genv"

// Location is where the guard is.
type Location struct {
	Dir      string // for the pins, in a bpffs, made for root alone; empty for DefaultDir
	Unpinned bool   // the guard ends with this process
	Cgroup   string // the folder in cgroup2 to guard, with all below it; empty for its root

	major int32 // of the devices; 0 is the NVIDIA driver's, which tests lack
}

func (o Location) deviceMajor() int32 { return cmp.Or(o.major, nvidiaMajor) }

// Guard is the guard in the kernel. It is safe for concurrent use.
type Guard struct {
	dir    string // "" if unpinned
	cgroup cgroup
	linkID uint32
	maps   *maps

	mu      sync.Mutex
	allowed map[snapshot.UID]guard.Minors // as written in the kernel
	link    bpfLink                       // only if unpinned, otherwise noLink
	closed  bool
}

// noLink replaces a link that only its pin holds.
const noLink bpfLink = -1

// Open attaches the guard, or takes over the pinned one and replaces its program by this version's without a gap. A new
// guard allows everything until SetControl.
func Open(o Location) (*Guard, error) {
	cg, err := findCgroup(o.Cgroup)
	if err != nil {
		return nil, err
	}
	if o.Unpinned {
		return openUnpinned(cg, o.deviceMajor())
	}
	dir := cmp.Or(o.Dir, DefaultDir)
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	g, err := takeOver(dir, cg, o.deviceMajor())
	if !errors.Is(err, errNotPinned) {
		return g, err
	}
	if err := Remove(dir); err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	return openPinned(dir, cg, o.deviceMajor())
}

// openPinned pins the link last: if the process is killed before, nothing is guarded.
func openPinned(dir string, cg cgroup, major int32) (*Guard, error) {
	g, err := openUnpinned(cg, major)
	if err != nil {
		return nil, err
	}
	if err = g.maps.pin(dir); err == nil {
		err = classify("pin the link", g.link.pin(linkPin(dir)))
	}
	if err != nil {
		return nil, errors.Join(err, g.Close(), Remove(dir))
	}
	// From here on only the pin holds the link: removing it by hand ends the guard at once.
	g.dir = dir
	err = g.link.Close()
	g.link = noLink
	return g, err
}

func openUnpinned(cg cgroup, major int32) (*Guard, error) {
	m, err := createMaps()
	if err != nil {
		return nil, err
	}
	program, _, err := m.load(major)
	if err != nil {
		m.close()
		return nil, err
	}
	defer program.Close()
	l, id, err := cg.attach(program)
	if err != nil {
		m.close()
		return nil, err
	}
	return &Guard{cgroup: cg, linkID: id, maps: m, allowed: map[snapshot.UID]guard.Minors{}, link: l}, nil
}

// Close ends this process's use of the guard. A pinned one acts until its lease ends; an unpinned one is gone.
func (g *Guard) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	g.maps.close()
	if g.link != noLink {
		return g.link.Close()
	}
	return nil
}

func (g *Guard) attached() error {
	if g.closed {
		return fmt.Errorf("the guard: %w", unix.EBADF)
	}
	if g.link != noLink {
		return g.checkLink(g.link)
	}
	l, err := pinnedLink(linkPin(g.dir))
	switch {
	case isPassing(err):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", guard.ErrRemoved, err)
	}
	defer l.Close()
	return g.checkLink(l)
}

func (g *Guard) checkLink(l bpfLink) error {
	id, cgroup, err := l.facts()
	switch {
	case err != nil:
		return err
	case id != g.linkID, cgroup != g.cgroup.id:
		return fmt.Errorf("%w: another one has taken its place, or its cgroup is gone", guard.ErrRemoved)
	}
	return nil
}

// control is Control for the program: a hash map's element, which the kernel replaces as a whole.
type control struct {
	Deadline uint64 // CLOCK_BOOTTIME, ns
	Mode     uint32
	FirstUID uint32
}

// SetControl sets mode, lease and first uid at once. ErrRemoved means that nothing is guarded any more.
func (g *Guard) SetControl(c guard.Control) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !c.Mode.Valid() || c.FirstUID == 0 {
		return fmt.Errorf("set the guard's control: %s, uids from %d", c.Mode, c.FirstUID)
	}
	if err := g.attached(); err != nil {
		return err
	}
	now, err := proc.SinceBoot()
	if err != nil {
		return err
	}
	v := control{Deadline: uint64(now + max(c.Lease, 0)), Mode: uint32(c.Mode), FirstUID: uint32(c.FirstUID)}
	if err := g.maps.control.Put(uint32(0), &v); err != nil {
		return fmt.Errorf("set the guard's control: %w", err)
	}
	return nil
}

func (m *maps) readControl() (guard.Control, error) {
	var v control
	switch err := m.control.Lookup(uint32(0), &v); {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return guard.Control{}, nil
	case err != nil:
		return guard.Control{}, fmt.Errorf("read the guard's control: %w", err)
	}
	now, err := proc.SinceBoot()
	if err != nil {
		return guard.Control{}, err
	}
	left := max(time.Duration(v.Deadline)-now, 0)
	return guard.Control{Mode: guard.Mode(v.Mode), Lease: left, FirstUID: snapshot.UID(v.FirstUID)}, nil
}

var errNotPinned = errors.New("no guard is pinned")

// While this pin exists, the guard is attached.
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

// takeOver returns errNotPinned if it can't continue with the pins in dir.
func takeOver(dir string, cg cgroup, major int32) (*Guard, error) {
	l, err := pinnedLink(linkPin(dir))
	switch {
	case isPassing(err):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNotPinned, err)
	}
	defer l.Close()
	id, cgroup, err := l.facts()
	if err != nil {
		return nil, err
	}
	if cgroup != cg.id {
		return nil, fmt.Errorf("%w: it is attached to another cgroup", errNotPinned)
	}
	m, err := loadMaps(dir)
	switch {
	case isPassing(err):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNotPinned, err)
	}
	g := &Guard{dir: dir, cgroup: cg, linkID: id, maps: m, link: noLink}
	if err = m.replaceProgram(l, major); err == nil {
		g.allowed, err = m.readAllowed()
	}
	if err != nil {
		m.close()
		return nil, err
	}
	return g, nil
}

func (m *maps) replaceProgram(l bpfLink, major int32) error {
	program, _, err := m.load(major)
	if err != nil {
		return err
	}
	defer program.Close()
	return classify("replace the program", l.update(program))
}

// Remove ends the guard pinned in dir, if any, at once, like removing the folder by hand.
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

// State reads the state from the kernel. ErrRemoved means that there is no guard any more.
func (g *Guard) State() (guard.KernelState, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.attached(); err != nil {
		return guard.KernelState{}, err
	}
	return g.maps.state(g.dir)
}

// Inspect only reads the state of the pinned guard. ErrRemoved means that none is pinned.
func Inspect(dir string) (guard.KernelState, error) {
	dir = cmp.Or(dir, DefaultDir)
	l, err := pinnedLink(linkPin(dir))
	if err != nil {
		return guard.KernelState{}, inspectError(err)
	}
	defer l.Close()
	_, cgroup, err := l.facts()
	switch {
	case err != nil:
		return guard.KernelState{}, err
	case cgroup == 0:
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

func inspectError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w, or never was there: %w", guard.ErrRemoved, err)
	}
	return classify("read the pinned guard", err)
}
