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

var environmentRules = []hostRule{
	{enforce.RuleEnvMemory, (*judge).envMemory},
	{enforce.RuleIdle, (*judge).idle},
	{enforce.RuleMaxDuration, (*judge).maxDuration},
}

func (j *judge) envMemory(h *judging.HostView) {
	if !h.Settings.EnvMemory {
		return
	}
	for _, env := range h.InOrder {
		byDevice := func(a, b judging.Attachment) int { return cmp.Compare(a.Device.Index, b.Device.Index) }
		attachments := env.Attachments
		if !slices.IsSortedFunc(attachments, byDevice) { // usually they are
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
	// An unproved container doesn't affect the warning of the user, nor the reverse.
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

// relieve adds a finding about an excess, if processes have to end for it. then is the choice for the time when it is
// due.
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
	due := j.CheckDue(h, &f, judging.NewWarning(warn, memoryKeys(&f)...))
	for _, p := range then.Ending {
		j.End(&f, due, h, p)
	}
	j.Add(f)
}

// memoryKeys are the keys of a warning: of the environment on that device, and of its user on the host.
func memoryKeys(f *enforce.Finding) []string {
	if f.User == "" {
		return []string{f.ID}
	}
	return []string{f.ID, fmt.Sprintf("%s/%s/user/%s", f.Rule, f.Host, f.User)}
}

// maxDuration detaches devices that were attached for too long, by root's looks. env-devices then judges processes that
// keep using them.
func (j *judge) maxDuration(h *judging.HostView) {
	for _, env := range h.InOrder {
		limit := env.Settings.MaxDuration
		if limit <= 0 {
			continue
		}
		for _, a := range env.Attachments {
			since := h.Uses[judging.UseOf(env.Person, a.Device)].Attached
			if lasted := h.At.Sub(since); lasted > limit && env.ExemptUse(a.Device.Index) == judging.Unused {
				f := enforce.Finding{Rule: enforce.RuleMaxDuration, For: lasted, Limit: limit}
				j.loseAttachment(h, env, a, f, nil)
			}
		}
	}
}

func (j *judge) loseAttachment(h *judging.HostView, env *judging.EnvView, a judging.Attachment, f enforce.Finding,
	ending []*snapshot.Process,
) {
	f.ID = string(f.Rule) + "/" + string(h.Name) + "/" + string(env.Env.EID) + "/" + a.Device.Key() + "/" + a.Time.ISO()
	f.Host, f.EID, f.User, f.UID = h.Name, env.Env.EID, env.Env.Username, env.UID()
	f.Devices, f.Instances = append(f.Devices, a.Device.Index), a.Instances
	f.Warn = env.Settings.WarnOf(f.Rule)
	due := j.CheckDue(h, &f, judging.NewWarning(f.Warn, clockKey(f.Rule, h, judging.UseOf(env.Person, a.Device))))
	j.LoseDevice(&f, due, h, env, a.Device.Index)
	for _, p := range ending {
		j.End(&f, due, h, p)
	}
	if due && f.Rule == enforce.RuleIdle && !env.Settings.Idle.End {
		h.NoteIdleDetached(a.Device, env)
	}
	j.Add(f)
}

// idle detaches devices that were idle for long enough. With end it also ends their processes, and those that count
// without an environment, unless they use another GPU.
func (j *judge) idle(h *judging.HostView) {
	var kept map[enforce.UseKey]bool // by such a process
	for i := range j.Holders {
		if x := &j.Holders[i]; h.MostIdle >= 0 && x.Settings.Idle.End && !endable(h, x) {
			for _, u := range x.Process.Usage {
				judging.Put(&kept, x.Key(h, u.Index), true)
			}
		}
	}
	var ending map[snapshot.PID]bool
	for _, env := range h.InOrder {
		rule := env.Settings.Idle
		if rule == nil || h.MostIdle < rule.After { // most hosts have nothing idle
			continue
		}
		for _, a := range env.Attachments {
			key := judging.UseOf(env.Person, a.Device)
			lasted := h.Uses[key].IdleFor(h.At)
			if lasted < rule.After || kept[key] {
				continue
			}
			var here []*snapshot.Process
			for p := range env.On(a.Device.Index) {
				if rule.End && judging.UseBy(env.Env.UID, p) != judging.Unused {
					judging.Put(&ending, p.PID, true)
					here = append(here, p)
				}
			}
			f := enforce.Finding{Rule: enforce.RuleIdle, For: lasted, Limit: rule.After}
			f.BelowPower = byPower(h, key, rule)
			j.loseAttachment(h, env, a, f, here)
		}
	}
	for i := range j.Holders {
		if x := &j.Holders[i]; x.Settings.Idle.End && x.Counts && !ending[x.Process.PID] && endable(h, x) {
			j.endIdle(h, x)
		}
	}
}

func clockKey(rule enforce.Rule, h *judging.HostView, use enforce.UseKey) string {
	return string(rule) + "/" + string(h.Name) + "/" + use.String()
}

func endable(h *judging.HostView, x *judging.Holder) bool {
	after := x.Settings.Idle.After
	return !slices.ContainsFunc(x.Process.Usage, func(u snapshot.DeviceUsage) bool {
		return h.MostIdle < after || h.Uses[x.Key(h, u.Index)].IdleFor(h.At) < after || h.IgnoresUse(u)
	})
}

// byPower is the rule's percentage of the power limit if a GPU is idle by power alone; else 0.
func byPower(h *judging.HostView, key enforce.UseKey, rule *enforce.Idle) int {
	if use := h.Uses[key]; use.Idle.IsZero() || h.At.Sub(use.Idle) < rule.After {
		return rule.BelowPower
	}
	return 0
}

func (j *judge) endIdle(h *judging.HostView, x *judging.Holder) {
	f := enforce.Finding{Rule: enforce.RuleIdle, Limit: x.Settings.Idle.After, Warn: x.Settings.WarnOf(enforce.RuleIdle)}
	f.User, f.UID = x.Process.Reported()
	f.Devices = x.Process.Indices()
	j.describe(h, x.Process, &f)
	keys := []string{f.ID}
	for i, u := range x.Process.Usage {
		key := x.Key(h, u.Index)
		if lasted := h.Uses[key].IdleFor(h.At); i == 0 || lasted < f.For {
			f.For = lasted
		}
		f.BelowPower = max(f.BelowPower, byPower(h, key, x.Settings.Idle))
		if i < maxKeys {
			keys = append(keys, clockKey(f.Rule, h, key))
		}
	}
	due := j.CheckDue(h, &f, judging.NewWarning(f.Warn, keys...))
	j.End(&f, due, h, x.Process)
	j.Add(f)
}
