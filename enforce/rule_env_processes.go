package enforce

import (
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// nonEnvProcesses ends processes that are in no environment of this host. A
// claim alone is not enough: anybody can write GENV_ENVIRONMENT_ID=bogus, so the
// environment must be registered.
func (e *evaluation) nonEnvProcesses(h *hostView) {
	if !h.settings.NonEnvProcesses {
		return
	}
	for i := range h.snapshot.Processes {
		p := &h.snapshot.Processes[i]
		if p.EnvUnknown || h.kept[p.PID] || h.envOf(p) != nil {
			continue
		}
		e.endProcess(h, p, h.settings.Warn, Finding{Rule: RuleNonEnvProcesses})
	}
}

// envDevices ends processes that use a device to which their environment is not
// attached.
func (e *evaluation) envDevices(h *hostView) {
	if !h.settings.EnvDevices {
		return
	}
	for _, env := range h.inOrder {
		for _, p := range env.processes {
			if foreign := h.notAttached(env, p); len(foreign) > 0 {
				user := env.env.Username
				e.endProcess(h, p, e.query(h, user).Warn, Finding{Rule: RuleEnvDevices, User: user, Devices: foreign})
			}
		}
	}
}

// notAttached lists the devices that a process of the environment uses without
// an attachment, in the order in which the host named them.
func (h *hostView) notAttached(env *envView, p *snapshot.Process) []snapshot.DeviceIndex {
	var foreign []snapshot.DeviceIndex
	for _, u := range p.Usage {
		if !h.attached(env, u.Index) && !h.exemptDevices[u.Index] {
			foreign = append(foreign, u.Index)
		}
	}
	return foreign
}

// endProcess is a finding about one process, which ends once it is due.
func (e *evaluation) endProcess(h *hostView, p *snapshot.Process, warn Warn, f Finding) {
	f.ID = fmt.Sprintf("%s/%s/%d/%d", f.Rule, h.name, p.PID, p.Start)
	f.Host, f.PID, f.EID = h.name, p.PID, p.EID
	f.Terminate = []ProcessRef{{h.name, p.PID}}
	if e.find(&f, warn) {
		h.draft.kill(p, f.ID)
	}
	e.add(f)
}
