package rules

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
)

// envMemory brings every environment within its capacity on each device, in the order of the devices.
func (j *judge) envMemory(h *judging.HostView) {
	if !h.Settings.EnvMemory {
		return
	}
	for _, env := range h.InOrder {
		byDevice := func(a, b judging.Attachment) int { return cmp.Compare(a.Device.Index, b.Device.Index) }
		attachments := env.Attachments
		if !slices.IsSortedFunc(attachments, byDevice) { // hosts list their devices in order, but need not
			attachments = slices.SortedFunc(slices.Values(attachments), byDevice)
		}
		for _, a := range attachments {
			switch {
			case !a.GPUMemory.Known():
			case a.Device.Unified:
				j.Note(h, "GPU %d shares the memory of its machine, so env-memory does not apply to environment "+
					"%s on it", a.Device.Index, env.Env.EID.Shown())
			default:
				j.envMemoryOn(h, env, a)
			}
		}
	}
}

func (j *judge) envMemoryOn(h *judging.HostView, env *judging.EnvView, a judging.Attachment) {
	index := a.Device.Index
	if used, unknown := env.Used(index); used <= a.GPUMemory.Bytes() {
		if unknown > 0 {
			j.Note(h, "how much memory %d processes of environment %s use on GPU %d is not known, so its "+
				"capacity is not judged", unknown, env.Env.EID.Shown(), index)
		}
		return
	}
	// What an unproved container uses doesn't count for the warning of the user, nor the reverse.
	by := time.Time{}
	relieve := func() (proved, unproved judging.Excess) {
		return env.Relieve(index, a.GPUMemory.Bytes(), func(p *snapshot.Process) bool {
			return h.Stuck(p) || h.EndsBy(p, by)
		})
	}
	proved, unproved := relieve()
	f := enforce.Finding{
		ID:   fmt.Sprintf("%s/%s/%s/%s", enforce.RuleEnvMemory, h.Name, env.Env.EID, a.Device.Key()),
		Rule: enforce.RuleEnvMemory, Host: h.Name, EID: env.Env.EID, User: env.Env.Username, UID: env.UID(),
		Devices: []snapshot.DeviceIndex{index}, Instances: a.Instances,
	}
	warn := env.Settings.WarnOf(f.Rule)
	by = j.DueAt(h, warn, memoryKeys(&f)...)
	then, unprovedThen := relieve()
	j.relieve(h, f, warn, a, proved, then)
	f.ID, f.User, f.UID = f.ID+"/unproved", "", nil
	j.relieve(h, f, h.Settings.WarnOf(f.Rule), a, unproved, unprovedThen)
}

// relieve adds a finding about an excess, if processes end for it: those of then, chosen for the time when it is due.
func (j *judge) relieve(h *judging.HostView, f enforce.Finding, warn enforce.Warn, a judging.Attachment,
	excess, then judging.Excess,
) {
	if len(excess.Ending) == 0 {
		return
	}
	f.Memory = &enforce.MemoryExcess{
		UsedBytes: excess.Used, CapacityBytes: a.GPUMemory.Bytes(), Capacity: a.GPUMemory.String(),
	}
	f.Container, f.ContainerInfo = excess.Container()
	due := j.CheckDue(h, &f, judging.NewClock(warn, memoryKeys(&f)...))
	for _, p := range then.Ending {
		j.End(&f, due, h, p)
	}
	j.Add(f)
}

// memoryKeys are those of a clock: of the environment on that device, and of its user here.
func memoryKeys(f *enforce.Finding) []string {
	if f.User == "" {
		return []string{f.ID}
	}
	return []string{f.ID, fmt.Sprintf("%s/%s/user/%s", f.Rule, f.Host, f.User)}
}
