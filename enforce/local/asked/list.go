package asked

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Process identifies a process of this boot.
type Process struct {
	PID   snapshot.PID       `json:"pid"`
	Start snapshot.StartTime `json:"start"`
}

// Asker is by what right a report is carried out.
type Asker struct {
	Name string // of the controller; "" if it isn't known
	// Hold keeps all other controllers from taking its place until release is called. With
	// an error, another one has done so. It is nil if none can.
	Hold func() (release func(), err error)
}

// Request is a report that asks processes to end.
type Request struct {
	By     string // the controller; "" if it isn't known
	Report string // the ID of the report; "" for none
	Grace  time.Duration
}

// Earlier is what another report has asked a process, at the time of a request.
type Earlier struct {
	Ago  time.Duration // since when it was asked
	Left time.Duration // until the end of its grace; negative once that is over
	// Sent says that the process got the signal; otherwise the genv that was to send it may
	// have been killed before.
	Sent bool
}

// entry is a process that was asked to end. Times are those since the boot.
type entry struct {
	Process
	Turn   string        `json:"turn"` // names the execution
	By     string        `json:"by,omitempty"`
	Report string        `json:"report,omitempty"`
	Begun  time.Duration `json:"begun_ns"`
	Until  time.Duration `json:"until_ns"` // the end of the grace
	Sent   bool          `json:"sent,omitempty"`
}

type list []entry

const (
	// after is how long after its grace a process that was asked by one controller is not
	// asked again by another one: as long as a controller leaves alone what survived SIGTERM.
	after = time.Minute
	// maxEntries bounds the list. The processes that are asked when it is full may be asked
	// twice.
	maxEntries = 4096
)

// earlier is what is in the way of a request; nil if the process may be asked. A controller
// that asks once more by another report knows what it does: an operator wants it.
func (e *entry) earlier(r *Request, now time.Duration) *Earlier {
	if e == nil {
		return nil
	}
	again := r.By != "" && e.By == r.By && (r.Report == "" || e.Report != r.Report)
	recent := e.Sent && (e.By != r.By || r.Report != "" && e.Report == r.Report) && now < e.Until+after
	if again || now >= e.Until && !recent {
		return nil
	}
	return &Earlier{Ago: now - e.Begun, Left: e.Until - now, Sent: e.Sent}
}

// byProcess are the entries of processes.
func (l list) byProcess() map[Process]*entry {
	entries := make(map[Process]*entry, len(l))
	for i := range l {
		entries[l[i].Process] = &l[i]
	}
	return entries
}

func setOf(processes []Process) map[Process]bool {
	set := make(map[Process]bool, len(processes))
	for _, p := range processes {
		set[p] = true
	}
	return set
}

// with adds what is asked now, and forgets what is over.
func (l list) with(r *Request, turn string, processes []Process, now time.Duration) list {
	asked := setOf(processes)
	next := slices.DeleteFunc(slices.Clone(l), func(e entry) bool { return now >= e.Until+after || asked[e.Process] })
	for _, p := range processes {
		if len(next) < maxEntries {
			next = append(next, entry{Process: p, Turn: turn, By: r.By, Report: r.Report, Begun: now, Until: now + r.Grace})
		}
	}
	return next
}

// signalled notes which processes of a turn got the signal, and forgets the others.
func (l list) signalled(turn string, processes []Process) list {
	got := setOf(processes)
	next := slices.DeleteFunc(slices.Clone(l), func(e entry) bool { return e.Turn == turn && !got[e.Process] })
	for i := range next {
		next[i].Sent = next[i].Sent || next[i].Turn == turn
	}
	return next
}
