package controller_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// wakeful is a Link to hosts that report events. It is for a bubble of synctest.
type wakeful struct {
	plain
	begun time.Time

	mu     sync.Mutex
	hosts  map[string]*wakefulHost
	ended  []string // "SECONDS HOST PID", processes that were ended
	orders []string // their IDs
}

type wakefulHost struct {
	boot      string
	processes []snapshot.PID
	attached  bool // a user of an environment with a device
	woke      chan struct{}
	always    bool          // it wakes at once, for ever
	changes   bool          // and shows another snapshot each time
	takes     time.Duration // a snapshot
	ignores   time.Duration // SIGTERM
	quiet     bool          // it doesn't wake when a process ends
	lost      error
	deaf      bool                 // its events end
	kind      snapshot.ProcessType // of its processes, which draw on a screen if they aren't compute processes
	asked     int
	looks     []time.Duration // when it was asked, since the beginning
	last      *snapshot.Snapshot
}

func newWakeful(names ...string) *wakeful {
	w := &wakeful{begun: time.Now(), hosts: make(map[string]*wakefulHost)}
	for _, name := range names {
		w.hosts[name] = &wakefulHost{boot: "1", kind: snapshot.TypeCompute, woke: make(chan struct{}, 1)}
	}
	return w
}

// change changes a host, and wakes the one that wakes.
func (w *wakeful) change(name, wakes string, change func(*wakefulHost)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w.hosts[name])
	w.hosts[name].last = nil
	if wakes != "" {
		select {
		case w.hosts[wakes].woke <- struct{}{}:
		default:
		}
	}
}

// starts starts a process on a host, which wakes.
func (w *wakeful) starts(name string, pid snapshot.PID) {
	w.change(name, name, func(h *wakefulHost) { h.processes = append(h.processes, pid) })
}

func (w *wakeful) Await(ctx context.Context, h remote.Host, done func(bool, error)) {
	go func() { done(w.wait(ctx, h)) }()
}

func (w *wakeful) wait(ctx context.Context, h remote.Host) (bool, error) {
	w.mu.Lock()
	host := w.hosts[h.Name]
	always := host.always
	w.mu.Unlock()
	if always {
		return true, nil
	}
	select {
	case <-host.woke:
		w.mu.Lock()
		defer w.mu.Unlock()
		if host.deaf {
			return false, agent.ErrNoEvents
		}
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

func (w *wakeful) Snapshot(_ context.Context, h remote.Host) (*snapshot.Snapshot, error) {
	w.mu.Lock()
	host := w.hosts[h.Name]
	takes := host.takes
	host.looks = append(host.looks, time.Since(w.begun))
	w.mu.Unlock()
	time.Sleep(takes)
	w.mu.Lock()
	defer w.mu.Unlock()
	host.asked++
	if host.lost != nil {
		return nil, host.lost
	}
	if host.last != nil && !host.changes {
		return host.last, nil
	}
	uid := snapshot.UID(1001)
	s := &snapshot.Snapshot{BootID: host.boot, Devices: []snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(100), Display: new(true)}}}
	if host.attached {
		s.Environments = []snapshot.Environment{{EID: "7", UID: uid, Username: "alice"}}
		s.Devices[0].Attachments = []snapshot.Attachment{{EID: "7"}}
	}
	for _, pid := range host.processes {
		s.Processes = append(s.Processes, snapshot.Process{PID: pid, Start: 1, UID: &uid, Username: "alice", Usage: []snapshot.DeviceUsage{{Index: 0, Type: host.kind}}})
	}
	host.last = s
	return s, nil
}

func (w *wakeful) Execute(_ context.Context, h remote.Host, o order.Order) (done agent.Execution, err error) {
	w.mu.Lock()
	host := w.hosts[h.Name]
	w.orders = append(w.orders, o.ID)
	for _, d := range o.Detach {
		w.ended = append(w.ended, fmt.Sprintf("%.0f %s detach %d", time.Since(w.begun).Seconds(), h.Name, d.Device))
		host.attached, host.last = false, nil
		done.Outcomes = append(done.Outcomes, order.Outcome{Device: d.Device, EID: d.Environment.EID, Status: order.StatusDetached})
	}
	for i := range o.Terminate {
		pid := o.Terminate[i].Process.PID
		w.ended = append(w.ended, fmt.Sprintf("%.0f %s %d", time.Since(w.begun).Seconds(), h.Name, pid))
		done.Outcomes = append(done.Outcomes, order.Outcome{PID: pid, Status: order.StatusTerminated})
	}
	w.mu.Unlock()
	time.Sleep(host.ignores)
	for i := range o.Terminate {
		wakes := h.Name
		if host.quiet {
			wakes = ""
		}
		w.change(h.Name, wakes, func(host *wakefulHost) {
			host.processes = slices.DeleteFunc(host.processes, func(pid snapshot.PID) bool { return pid == o.Terminate[i].Process.PID })
		})
	}
	return done, nil
}
