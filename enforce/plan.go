package enforce

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// Plan is what was concluded.
type Plan struct {
	Findings []Finding
	// Reports holds the hosts that have something to do, in the cluster's order.
	Reports []HostReport
	// Notes say what could not be judged, and why nothing is done about it.
	Notes []Note
	// HeldUsers and HeldHosts are those whose actions the safety limits held
	// back: these are not in Reports.
	HeldUsers []safety.Held
	HeldHosts []safety.Held
	// TellUsers has the users of findings notified on their terminals.
	TellUsers bool
}

// Held reports whether the safety limits held anything back.
func (p *Plan) Held() bool { return len(p.HeldUsers)+len(p.HeldHosts) > 0 }

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
	terminate map[snapshot.PID]*Termination
	detach    map[deviceOfEnv]*Detachment
	underWay  underWay
}

// underWay is what earlier reports are about that the host is still carrying out.
// It need not be in the draft.
type underWay struct {
	reports   int
	ending    map[snapshot.PID]snapshot.StartTime
	detaching map[deviceOfEnv]bool
}

func (u *underWay) ends(p *snapshot.Process) bool {
	start, ending := u.ending[p.PID]
	return ending && start == p.Start
}

func (u *underWay) add(r *Report) {
	if u.ending == nil {
		u.ending, u.detaching = make(map[snapshot.PID]snapshot.StartTime), make(map[deviceOfEnv]bool)
	}
	u.reports++
	for i := range r.Terminate {
		u.ending[r.Terminate[i].Process.PID] = r.Terminate[i].Process.Start
	}
	for i := range r.Detach {
		u.detaching[deviceOfEnv{r.Detach[i].Device, r.Detach[i].Environment.EID}] = true
	}
}

// deviceOfEnv is an attachment on a host.
type deviceOfEnv struct {
	device snapshot.DeviceIndex
	eid    snapshot.EnvID
}

// kill puts a process into the report because of a finding.
func (d *draft) kill(p *snapshot.Process, because string) {
	if d.terminate == nil {
		d.terminate = make(map[snapshot.PID]*Termination)
	}
	t := d.terminate[p.PID]
	if t == nil {
		t = &Termination{Process: *p}
		d.terminate[p.PID] = t
	}
	t.Because = append(t.Because, because)
}

// kills reports whether a process ends anyway.
func (d *draft) kills(p *snapshot.Process) bool {
	_, ok := d.terminate[p.PID]
	return ok || d.underWay.ends(p)
}

// take puts a detachment into the report because of a finding.
func (d *draft) take(device snapshot.DeviceIndex, env *snapshot.Environment, because string) {
	if d.detach == nil {
		d.detach = make(map[deviceOfEnv]*Detachment)
	}
	key := deviceOfEnv{device, env.EID}
	x := d.detach[key]
	if x == nil {
		x = &Detachment{Device: device, Environment: *env}
		d.detach[key] = x
	}
	x.Because = append(x.Because, because)
}

// takes reports whether an environment loses a device anyway.
func (d *draft) takes(device snapshot.DeviceIndex, eid snapshot.EnvID) bool {
	_, ok := d.detach[deviceOfEnv{device, eid}]
	return ok || d.underWay.detaching[deviceOfEnv{device, eid}]
}

func (d *draft) report() Report {
	var r Report
	for _, t := range d.terminate {
		r.Terminate = append(r.Terminate, *t)
	}
	slices.SortFunc(r.Terminate, func(a, b Termination) int { return cmp.Compare(a.Process.PID, b.Process.PID) })
	for _, x := range d.detach {
		r.Detach = append(r.Detach, *x)
	}
	slices.SortFunc(r.Detach, func(a, b Detachment) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Environment.EID, b.Environment.EID))
	})
	return r
}
