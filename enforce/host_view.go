package enforce

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// hostView is a host's snapshot with the indices that the rules need, and the
// draft of its report. A snapshot may hold many thousand environments (a
// hostile host's does), so nothing here is looked up by scanning.
type hostView struct {
	name     snapshot.Hostname
	snapshot *snapshot.Snapshot
	inOrder  []envView // as the host listed them
	envs     map[snapshot.EnvID]*envView
	draft    draft
}

// envView is a registered environment with its processes and attachments.
type envView struct {
	env         *snapshot.Environment
	processes   []*snapshot.Process
	attachments []attachment
}

// attachment is an attachment together with its device.
type attachment struct {
	device snapshot.DeviceIndex
	*snapshot.Attachment
}

func newHostView(h *snapshot.Host) *hostView {
	s := h.Snapshot
	v := &hostView{
		name: h.Name, snapshot: s,
		inOrder: make([]envView, len(s.Environments)),
		envs:    make(map[snapshot.EnvID]*envView, len(s.Environments)),
	}
	for i := range s.Environments {
		v.inOrder[i].env = &s.Environments[i]
		v.envs[s.Environments[i].EID] = &v.inOrder[i]
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		for j := range d.Attachments {
			if env := v.envs[d.Attachments[j].EID]; env != nil {
				env.attachments = append(env.attachments, attachment{d.Index, &d.Attachments[j]})
			}
		}
	}
	for i := range s.Processes {
		if env := v.envOf(&s.Processes[i]); env != nil {
			env.processes = append(env.processes, &s.Processes[i])
		}
	}
	return v
}

// envOf is the registered environment of a process; nil when it is in none or
// nobody knows.
func (h *hostView) envOf(p *snapshot.Process) *envView {
	if p.EnvUnknown || p.EID == "" {
		return nil
	}
	return h.envs[p.EID]
}

func (e *envView) attached(index snapshot.DeviceIndex) bool {
	return slices.ContainsFunc(e.attachments, func(a attachment) bool { return a.device == index })
}
