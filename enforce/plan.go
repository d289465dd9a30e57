package enforce

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Plan is what Evaluate concluded.
type Plan struct {
	Findings []Finding
	// Reports holds the hosts that have something to do, in the cluster's order.
	Reports []HostReport
	// Notes say what could not be judged, and why nothing is done about it.
	Notes []Note
}

// HostReport is the report of one host.
type HostReport struct {
	Host   snapshot.Hostname
	Report Report
}

// Note is something that could not be judged.
type Note struct {
	Host snapshot.Hostname `json:"host,omitempty"`
	Text string            `json:"text"`
}

// draft collects what is to be done on one host while the rules run.
type draft struct {
	terminate map[snapshot.PID]*snapshot.Process
	detach    []Detachment
}

// kill puts a process into the report; once is enough.
func (d *draft) kill(p *snapshot.Process) {
	if d.terminate == nil {
		d.terminate = make(map[snapshot.PID]*snapshot.Process)
	}
	d.terminate[p.PID] = p
}

func (d *draft) kills(p *snapshot.Process) bool {
	_, ok := d.terminate[p.PID]
	return ok
}

func (d *draft) report() Report {
	var r Report
	for _, p := range d.terminate {
		r.Terminate = append(r.Terminate, Termination{Process: *p})
	}
	slices.SortFunc(r.Terminate, func(a, b Termination) int { return cmp.Compare(a.Process.PID, b.Process.PID) })
	slices.SortStableFunc(d.detach, func(a, b Detachment) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Environment.EID, b.Environment.EID))
	})
	r.Detach = d.detach
	return r
}
