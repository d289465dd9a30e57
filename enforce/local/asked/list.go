// Package asked keeps the list of a host's processes that were asked to end, by whom, and until when. So a process
// gets SIGTERM once, and one grace, also if another controller takes over meanwhile.
//
//	register := &asked.Register{Path: asked.Path(os.Getenv), BootID: boot, SinceBoot: proc.SinceBoot}
//	end, earlier, err := register.Begin(asked.EndRequest{By: controller, Order: id, Grace: grace}, processes)
//	// earlier[i] is nil: processes[i] may be asked now
//	err = end(signalled)
//
// The list is about processes of this boot, so it is not synced to the disk: what a crash of
// the machine can lose is over then. It is written before a signal, and again after it.
package asked

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Authority is by what right an order is carried out.
type Authority struct {
	Name string // of the controller; "" if it isn't known
	// Hold keeps all other controllers from taking its place until release is called. With
	// an error, another one has done so. It is nil if none can.
	Hold func() (release func(), err error)
}

// EndRequest is an order that asks processes to end.
type EndRequest struct {
	By    string // the controller; "" if it isn't known
	Order string // the ID of the order; "" for none
	Grace time.Duration
}

// Earlier is what another order has asked a process, at the time of a request.
type Earlier struct {
	Ago  time.Duration // since when it was asked
	Left time.Duration // until the end of its grace; negative once that is over
	// Sent says that the process got the signal; otherwise the genv that was to send it may have been killed before.
	Sent bool
}

// Rest is how long an order waits for a process, and whether SIGKILL may follow: only if it certainly had SIGTERM, and
// all of its grace, which doesn't begin again. A nil Earlier: the order itself asked.
func (e *Earlier) Rest(grace time.Duration) (wait time.Duration, mayKill bool) {
	if e == nil {
		return grace, true
	}
	return max(0, min(grace, e.Left)), e.Sent && e.Left <= grace
}

// entry is a process that was asked to end. Times are those since the boot.
type askedProcess struct {
	proc.ID
	Turn  string        `json:"turn"` // names the execution
	By    string        `json:"by,omitempty"`
	Order string        `json:"report,omitempty"`
	Begun time.Duration `json:"begun_ns"`
	Until time.Duration `json:"until_ns"` // the end of the grace
	Sent  bool          `json:"sent,omitempty"`
}

const (
	// after is how long after its grace a process that was asked by one controller is not
	// asked again by another one: as long as a controller leaves alone what survived SIGTERM.
	after = time.Minute
	// maxEntries bounds the list. The processes that are asked when it is full may be asked twice.
	maxEntries = 4096
)

// earlier is what is in the way of a request, by the entries of a process, the latest last;
// nil if the process may be asked. An order that comes twice never asks twice.
func earlier(entries []*askedProcess, r *EndRequest, now time.Duration) *Earlier {
	if len(entries) == 0 {
		return nil
	}
	twice := slices.ContainsFunc(entries, func(e *askedProcess) bool { return r.Order != "" && e.Order == r.Order })
	e := entries[len(entries)-1]
	recent := e.Sent && e.By != r.By
	if !twice && now >= e.Until && !recent {
		return nil
	}
	return &Earlier{Ago: now - e.Begun, Left: e.Until - now, Sent: e.Sent}
}

// with adds what is asked now, and forgets what is over.
func with(list []askedProcess, r *EndRequest, turn string, processes []proc.ID, now time.Duration) []askedProcess {
	list = slices.DeleteFunc(list, func(e askedProcess) bool { return now >= e.Until+after })
	for _, p := range processes[:min(len(processes), max(0, maxEntries-len(list)))] {
		list = append(list, askedProcess{
			ID: p, Turn: turn, By: r.By, Order: r.Order, Begun: now, Until: now + r.Grace,
		})
	}
	return list
}

// signalled notes which processes of a turn got the signal, of which the grace begins now, and forgets the others.
func signalled(list []askedProcess, turn string, processes []proc.ID, now time.Duration) []askedProcess {
	got := make(map[proc.ID]bool, len(processes))
	for _, p := range processes {
		got[p] = true
	}
	list = slices.DeleteFunc(list, func(e askedProcess) bool { return e.Turn == turn && !got[e.ID] })
	for i := range list {
		if e := &list[i]; e.Turn == turn {
			e.Sent, e.Until, e.Begun = true, e.Until+now-e.Begun, now
		}
	}
	return list
}
