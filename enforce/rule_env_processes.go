package enforce

import "github.com/seed-3119e985/genv/snapshot"

// nonEnvProcesses ends processes that are in no environment of this host. A
// claim alone is not enough: anybody can write GENV_ENVIRONMENT_ID=bogus, so the
// environment must be registered.
func (e *evaluation) nonEnvProcesses(h *hostView) {
	for i := range h.snapshot.Processes {
		p := &h.snapshot.Processes[i]
		if p.EnvUnknown || h.envOf(p) != nil {
			continue
		}
		h.draft.kill(p)
		e.find(Finding{
			Rule: RuleNonEnvProcesses, Host: h.name, PID: p.PID, EID: p.EID,
			Terminate: []ProcessRef{{h.name, p.PID}},
		})
	}
}

// envDevices ends processes that use a device to which their environment is not
// attached.
func (e *evaluation) envDevices(h *hostView) {
	for i := range h.inOrder {
		env := &h.inOrder[i]
		for _, p := range env.processes {
			foreign := env.notAttached(p)
			if len(foreign) == 0 {
				continue
			}
			h.draft.kill(p)
			e.find(Finding{
				Rule: RuleEnvDevices, Host: h.name, PID: p.PID, EID: p.EID, User: env.env.Username, Devices: foreign,
				Terminate: []ProcessRef{{h.name, p.PID}},
			})
		}
	}
}

// notAttached lists the devices that a process of the environment uses without
// an attachment, in the order in which the host named them.
func (e *envView) notAttached(p *snapshot.Process) []snapshot.DeviceIndex {
	var foreign []snapshot.DeviceIndex
	for _, u := range p.Usage {
		if !e.attached(u.Index) {
			foreign = append(foreign, u.Index)
		}
	}
	return foreign
}
