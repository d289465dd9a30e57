package watch

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

const restAfterEvents = 10 * time.Millisecond // the kernel merges equal events of a flood meanwhile

// poller reads the kernel's events. A nil poller has none.
type poller struct {
	w *Watcher

	epoll *os.File
	fd    int // of epoll

	mu     sync.Mutex // of all fields below
	closed bool       // descriptors may be other files'
	files  *folders
	opens  int // descriptor of fanotify; -1 without it
	guard  *OpenLogReader
	ends   map[snapshot.PID]int
}

func (w *Watcher) begin() {
	events, err := newPoller(w)
	if err != nil {
		w.config.Debug("no events of this machine: it is looked at only at intervals", err)
		return
	}
	w.events = events
	events.watchOpens()
	w.work.Go(events.run)
}

func newPoller(w *Watcher) (*poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p := &poller{w: w, fd: epoll, opens: -1, ends: make(map[snapshot.PID]int)}
	if err := unix.SetNonblock(epoll, true); err != nil { // so that Go's poller waits for it
		return nil, errors.Join(fmt.Errorf("epoll: %w", err), unix.Close(epoll))
	}
	p.epoll = os.NewFile(uintptr(epoll), "epoll")
	if p.files, err = newFolders(&w.config); err == nil {
		err = p.add(p.files.fd)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	p.guard = NewOpenLogReader(w.config.RunDir) // after watching its folder
	return p, nil
}

func (p *poller) add(fd int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)} //nolint:gosec // descriptors are small
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

func (p *poller) watchOpens() {
	p.mu.Lock()
	defer p.mu.Unlock()
	opens, err := openFanotify(p.w.config.noFanotify, p.files.nodes())
	if err == nil {
		if err = p.add(opens); err != nil {
			_ = unix.Close(opens)
		}
	}
	if err == nil {
		p.opens = opens
		p.w.config.Debug("opens of GPUs are watched by fanotify", nil)
	} else {
		p.files.watchOpens = true
		p.w.config.Debug("opens of GPUs are watched by inotify, without the PIDs", err)
	}
	p.markNodes()
}

// markNodes watches the present device nodes; p.mu must be held.
func (p *poller) markNodes() {
	for _, node := range p.files.nodes() {
		var err error
		switch {
		case p.opens >= 0:
			err = markNode(p.opens, node)
		case p.files.watchOpens:
			err = p.files.watchNode(node)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			p.w.config.Debug("opens of "+node+" are not watched", err)
		}
	}
}

func (p *poller) run() {
	raw, err := p.epoll.SyscallConn()
	if err != nil {
		return
	}
	ready := make([]unix.EpollEvent, 64)
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, err = unix.EpollWait(int(fd), ready, 0)
			return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
		if err != nil || n <= 0 {
			return
		}
		p.w.note(p.read(ready[:n])...)
		time.Sleep(restAfterEvents)
	}
}

func (p *poller) read(ready []unix.EpollEvent) (happened []source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range ready {
		if p.ended(int(e.Fd)) {
			happened = append(happened, source{party: processEnds})
		}
	}
	return append(happened, p.drain()...)
}

// drain reads all events of files and devices; p.mu must be held.
func (p *poller) drain() (happened []source) {
	if p.closed {
		return nil
	}
	seen := p.files.read()
	if seen.state {
		happened = append(happened, source{party: stateFiles})
	}
	if seen.nodes {
		p.markNodes()
		happened = append(happened, source{party: unknownOpener}) // it may have been opened already
	}
	if seen.opened && !p.w.isLooking() { // nvidia-smi opens the devices during a look
		happened = append(happened, source{party: unknownOpener})
	}
	if p.opens >= 0 {
		happened = append(happened, p.w.sourcesOf(readOpens(p.opens))...)
	}
	if seen.guard {
		happened = append(happened, p.w.sourcesOf(p.guarded())...)
	}
	return happened
}

// guarded reads the guard's open log; p.mu must be held.
func (p *poller) guarded() map[snapshot.PID]bool {
	list, err := p.guard.Next()
	if err != nil {
		p.w.config.Debug("what the guard says about opens can't be read", err)
	}
	pids := make(map[snapshot.PID]bool, len(list))
	for _, pid := range list {
		pids[pid] = true
	}
	return pids
}

func (p *poller) remaining() []source {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drain()
}

func (p *poller) close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	_ = p.epoll.Close()
	if p.files != nil {
		_ = unix.Close(p.files.fd)
	}
	if p.opens >= 0 {
		_ = unix.Close(p.opens)
	}
	for _, fd := range p.ends {
		_ = unix.Close(fd)
	}
}

const maxEnds = 512 // processes to watch, with a descriptor each; the next look shows the end of others

func (p *poller) watchEnds(shown map[snapshot.PID]bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.files.watchAgain()
	for pid, fd := range p.ends {
		if !shown[pid] {
			delete(p.ends, pid)
			_ = unix.Close(fd) // ends watching it
		}
	}
	for pid := range shown {
		if p.ends[pid] == 0 && len(p.ends) < maxEnds {
			p.watchEnd(pid)
		}
	}
}

// watchEnd leaves a process that has ended already to the next look.
func (p *poller) watchEnd(pid snapshot.PID) {
	fd, err := unix.PidfdOpen(int(pid), 0)
	switch {
	case err != nil:
	case p.add(fd) != nil:
		_ = unix.Close(fd)
	default:
		p.ends[pid] = fd
	}
}

func (p *poller) ended(fd int) bool {
	for pid, of := range p.ends {
		if of == fd {
			delete(p.ends, pid)
			_ = unix.Close(fd)
			return true
		}
	}
	return false
}

// Change reports whether rules see another use of GPUs than in the look before, and whether they see more.
func Change(before, now *snapshot.Snapshot) (other, more bool) {
	old, list := usesOf(before), usesOf(now)
	known := make(map[string]bool, len(old))
	for _, use := range old {
		known[use] = true
	}
	more = slices.ContainsFunc(list, func(use string) bool { return !known[use] })
	return more || len(list) != len(old), more
}

// usesOf lists what rules see in a snapshot, without measured values; never nil.
func usesOf(s *snapshot.Snapshot) []string {
	list := []string{}
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for i := range s.Processes {
		p := &s.Processes[i]
		add("p %d %d %q %v", p.PID, p.Start, p.EID, p.Indices())
	}
	for i := range s.Environments {
		e := &s.Environments[i]
		add("e %q %d %v", e.EID, e.UID, e.PIDs)
	}
	for i := range s.Devices {
		for _, a := range s.Devices[i].Attachments {
			add("a %d %q %s", s.Devices[i].Index, a.EID, a.GPUMemory)
		}
	}
	for i := range s.Waits {
		add("w %q %d %v", s.Waits[i].ID, s.Waits[i].GPUs, s.Waits[i].Offered)
	}
	if s.Asked != nil {
		add("q %d", s.Asked.Number)
	}
	return list
}
