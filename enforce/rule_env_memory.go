package enforce

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// RuleEnvMemory is about environments that use more memory of a device than they may.
const RuleEnvMemory Rule = "env-memory"

var envMemoryRule = rule{
	Setting: Setting{
		strictyaml.NewSwitch(string(RuleEnvMemory), func(s *Settings) *bool { return &s.EnvMemory }),
		ByHost,
	},
	advice: "Use less memory on that GPU, or raise the environment's capacity in its shell, if the GPU has enough " +
		"free memory: " +
		"genv config gpu-memory AMOUNT.",
	adviceRun: "Use less memory on that GPU, or start it again with more: genv run --gpu-memory AMOUNT.",
	line: func(f Finding) string {
		return fmt.Sprintf("Environment %s is using %s on device %s which is %s over its capacity of %s",
			f.EID, text.Megabytes(f.Memory.UsedBytes), text.JoinIndices(f.Devices), text.Megabytes(f.Memory.bytes()),
			f.Memory.Capacity)
	},
}

// envMemory brings every environment within its capacity on each device, in the
// order of the devices.
func (j *judgement) envMemory(h *hostView) {
	if !h.settings.EnvMemory {
		return
	}
	for _, env := range h.inOrder {
		byDevice := func(a, b contents.Attachment) int { return cmp.Compare(a.Device.Index, b.Device.Index) }
		attachments := env.Attachments
		if !slices.IsSortedFunc(attachments, byDevice) { // hosts list their devices in order, but need not
			attachments = slices.SortedFunc(slices.Values(attachments), byDevice)
		}
		for _, a := range attachments {
			switch {
			case !a.GPUMemory.Known():
			case a.Device.Unified:
				j.note(h, "GPU %d shares the memory of its machine, so env-memory does not apply to environment "+
					"%s on it", a.Device.Index, env.env.EID.Shown())
			default:
				j.envMemoryOn(h, env, a)
			}
		}
	}
}

func (j *judgement) envMemoryOn(h *hostView, env *envView, a contents.Attachment) {
	index := a.Device.Index
	used, unknown := env.Used(index)
	if used <= a.GPUMemory.Bytes() {
		if unknown > 0 {
			j.note(h, "how much memory %d processes of environment %s use on GPU %d is not known, so its "+
				"capacity is not judged", unknown, env.env.EID.Shown(), index)
		}
		return
	}
	// What an unproved container uses must not count for the warning of the user, nor the
	// user's own use for that of the container.
	by := time.Time{}
	relieve := func() (proved, unproved contents.Excess) {
		return env.Relieve(index, a.GPUMemory.Bytes(), func(p *snapshot.Process) bool {
			return h.Stuck(p) || h.EndsBy(p, by)
		})
	}
	proved, unproved := relieve()
	f := Finding{
		ID:   fmt.Sprintf("%s/%s/%s/%s", RuleEnvMemory, h.name, env.env.EID, a.Device.Key()),
		Rule: RuleEnvMemory, Host: h.name, EID: env.env.EID, User: env.env.Username, UID: env.uid(),
		Devices: []snapshot.DeviceIndex{index}, Instances: a.Instances,
	}
	warn := env.settings.warnOf(f.Rule)
	by = j.dueAt(h, warn, memoryKeys(&f))
	then, unprovedThen := relieve()
	j.relieve(h, f, warn, a, proved, then)
	f.ID, f.User, f.UID = f.ID+"/unproved", "", nil
	j.relieve(h, f, h.settings.warnOf(f.Rule), a, unproved, unprovedThen)
}

// relieve is a finding about the processes that end for an excess, if there are any. Those that end
// once it is due are then's.
func (j *judgement) relieve(h *hostView, f Finding, warn Warn, a contents.Attachment, excess, then contents.Excess) {
	if len(excess.Ending) == 0 {
		return
	}
	f.Memory = &MemoryExcess{UsedBytes: excess.Used, CapacityBytes: a.GPUMemory.Bytes(), Capacity: a.GPUMemory.String()}
	f.Container, f.ContainerInfo = excess.Container()
	due := j.checkDue(h, &f, clock{warn, memoryKeys(&f)})
	for _, p := range then.Ending {
		j.end(&f, due, h, p)
	}
	j.add(f)
}

// memoryKeys are those of a clock: of the environment on that device, and of its user here.
func memoryKeys(f *Finding) []string {
	if f.User == "" {
		return []string{f.ID}
	}
	return []string{f.ID, fmt.Sprintf("%s/%s/user/%s", f.Rule, f.Host, f.User)}
}
