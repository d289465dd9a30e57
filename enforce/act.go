package enforce

import "github.com/seed-3119e985/genv/snapshot"

// end has a finding end a process, once it is due and unless that was tried in
// vain before.
func (j *judgement) end(f *Finding, due bool, h *hostView, p *snapshot.Process) {
	ref := ProcessRef{h.name, p.PID}
	if h.draft.underWay.ends(p) {
		f.UnderWay++
		return
	}
	if reason, stuck := j.stuckBecause(h.name, p); stuck {
		f.Stuck = append(f.Stuck, StuckProcess{ref, reason})
		return
	}
	f.Terminate = append(f.Terminate, ref)
	if due {
		h.draft.terminate(p, f.ID)
	}
}

// loseDevice notes that an environment is to lose a device; if it is due, in the
// report as well.
func (j *judgement) loseDevice(f *Finding, due bool, h *hostView, env *envView, index snapshot.DeviceIndex) {
	if h.draft.underWay.detaching[deviceOfEnv{index, env.env.EID}] {
		f.UnderWay++
		return
	}
	f.Detach = append(f.Detach, DeviceRef{h.name, index, env.env.EID})
	if due {
		h.draft.detach(index, env.env, f.ID)
	}
}
