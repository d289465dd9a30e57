package kernel

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// DefaultDir is where the guard is pinned.
const DefaultDir = "/sys/fs/bpf/genv"

// Options says where the guard is.
type Options struct {
	// Dir is the folder for the pins, in a mounted bpffs; it is made for root alone. Empty
	// is DefaultDir.
	Dir string
	// Unpinned keeps the guard in this process: it ends with the process.
	Unpinned bool
	// Cgroup is the folder in a cgroup2 hierarchy to guard, with all cgroups below it.
	// Empty is the root of the hierarchy.
	Cgroup string
}

// Guard is the guard in the kernel. Its methods can be called at the same time.
type Guard struct {
	dir    string // "" if unpinned
	cgroup cgroup
	linkID link.ID
	pids   bool
	maps   *maps

	mu      sync.Mutex
	allowed map[snapshot.UID]Minors // as written in the kernel
	link    link.Link               // only if unpinned
	closed  bool
}

// holding keeps the links of unpinned guards reachable. A link that becomes unreachable is
// closed when garbage is collected, and the guard would be gone without a word.
var holding sync.Map

// Open attaches the guard, or takes over the one that is pinned, with its lease, control
// and permissions, and replaces its program by this version's; no open is let through
// meanwhile. A new guard allows everything until SetControl. The errors are those above.
func Open(o Options) (*Guard, error) {
	cg, err := findCgroup(o.Cgroup)
	if err != nil {
		return nil, err
	}
	if o.Unpinned {
		return openUnpinned(cg)
	}
	dir := o.Dir
	if dir == "" {
		dir = DefaultDir
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	g, err := takeOver(dir, cg)
	if err == nil {
		return g, nil
	}
	if !errors.Is(err, errNotPinned) {
		return nil, err
	}
	if err := Remove(dir); err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	return openPinned(dir, cg)
}

// openPinned attaches a new guard and pins it, the link last: what a process that is killed
// here leaves behind guards nothing, and is replaced by the next one.
func openPinned(dir string, cg cgroup) (*Guard, error) {
	g, err := openUnpinned(cg)
	if err != nil {
		return nil, err
	}
	err = g.maps.pin(dir)
	if err == nil {
		if err = g.link.Pin(linkPin(dir)); err != nil {
			err = classify("pin the link", err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, g.Close(), Remove(dir))
	}
	// From here the pin alone holds the link: removing it by hand ends the guard at once.
	g.dir = dir
	holding.Delete(g)
	err = g.link.Close()
	g.link = nil
	return g, err
}

// openUnpinned attaches a new guard that this process holds.
func openUnpinned(cg cgroup) (*Guard, error) {
	m, err := createMaps()
	if err != nil {
		return nil, err
	}
	program, pids, err := m.load()
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
	g := &Guard{cgroup: cg, linkID: id, pids: pids, maps: m, allowed: map[snapshot.UID]Minors{}, link: l}
	holding.Store(g, struct{}{})
	return g, nil
}

// Close ends the use of the guard by this process. A pinned one stays, and acts until its
// lease ends; one that is not pinned is gone.
func (g *Guard) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	holding.Delete(g)
	g.maps.close()
	if g.link != nil {
		return g.link.Close()
	}
	return nil
}

// attached says whether the guard is still where Open put it.
func (g *Guard) attached() error {
	if g.closed {
		return fmt.Errorf("the guard: %w", unix.EBADF)
	}
	if g.link != nil {
		return g.checkLink(g.link)
	}
	l, err := link.LoadPinnedLink(linkPin(g.dir), nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRemoved, err)
	}
	defer l.Close()
	return g.checkLink(l)
}

func (g *Guard) checkLink(l link.Link) error {
	id, at, err := linkFacts(l)
	switch {
	case err != nil:
		return err
	case id != g.linkID, at != g.cgroup.id:
		return fmt.Errorf("%w: another one has taken its place, or its cgroup is gone", ErrRemoved)
	}
	return nil
}
