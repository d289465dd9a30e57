package rules

import (
	"cmp"
	"strconv"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
)

var processRules = []hostRule{
	{enforce.RuleNonEnvProcesses, (*judge).nonEnvProcesses},
	{enforce.RuleUnreadable, (*judge).unreadable},
	{enforce.RuleEnvDevices, (*judge).envDevices},
	{enforce.RuleMaxProcessAge, (*judge).processAge},
}

// nonEnvProcesses ends processes in no environment of this host. A claim (GENV_ENVIRONMENT_ID=bogus) is not enough: the
// environment must be registered for the process's user (see snapshot.Environment.Admits).
func (j *judge) nonEnvProcesses(h *judging.HostView) {
	if !h.Settings.NonEnvProcesses {
		return
	}
	for i := range h.Snapshot.Processes {
		p := &h.Snapshot.Processes[i]
		if h.Exempt[p.PID] || h.In[i] != nil || p.EnvUnknown && !h.OutsideByPolicy(p) {
			continue
		}
		f := enforce.Finding{Rule: enforce.RuleNonEnvProcesses}
		f.User, f.UID = p.Reported()
		settings := j.settingsReported(h, &f)
		j.endProcess(h, p, settings, settings.WarnOf(f.Rule), f)
	}
}

// unreadable reports processes if root can't find out within bounds whether they are in an environment. If the policy
// says so, it ends them when their user caused that.
func (j *judge) unreadable(h *judging.HostView) {
	for i := range h.Snapshot.Processes {
		p := &h.Snapshot.Processes[i]
		if p.Unreadable == nil || !p.EnvUnknown || h.Exempt[p.PID] || h.In[i] != nil || p.NodeMissing {
			continue
		}
		f := enforce.Finding{Rule: enforce.RuleUnreadable, Unreadable: p.Unreadable}
		f.User, f.UID = p.Reported()
		if h.Settings.EndUnreadable && p.Unreadable.IsByUser() && p.Start != 0 && p.UID != nil && *p.UID != 0 {
			settings := j.settingsReported(h, &f)
			j.endProcess(h, p, settings, settings.WarnOf(f.Rule), f)
			continue
		}
		j.describe(h, p, &f)
		j.CheckDue(h, &f, judging.NewWarning(enforce.Warn{}, f.ID))
		j.Add(f)
	}
}

func (j *judge) settingsReported(h *judging.HostView, f *enforce.Finding) *enforce.Settings {
	if f.User == "" {
		return h.Settings
	}
	return h.SettingsOf(f.User)
}

func (j *judge) envDevices(h *judging.HostView) {
	if !h.Settings.EnvDevices {
		return
	}
	for _, env := range h.InOrder {
		for _, p := range env.Processes {
			if foreign, rule := j.notAttached(h, env, p); len(foreign) > 0 {
				f := enforce.Finding{Rule: enforce.RuleEnvDevices, Devices: foreign}
				f.User, f.UID = env.Env.Username, env.UID()
				settings := env.Settings
				if p.StartedByUnknown() {
					f.User, f.UID = p.Reported()
					settings = j.settingsReported(h, &f)
				}
				j.endProcess(h, p, settings, settings.WarnOf(rule), f)
			}
		}
	}
}

// notAttached lists a process's unattached devices, and the rule whose warning applies: idle if that detached all of
// them.
func (j *judge) notAttached(h *judging.HostView, env *judging.EnvView, p *snapshot.Process) (
	foreign []snapshot.DeviceIndex, warned enforce.Rule,
) {
	warned = enforce.RuleIdle
	for _, u := range p.Usage {
		if env.Attached(u.Index) || h.IgnoresUse(u) {
			continue
		}
		still, was := j.IdleDetached(h, env, u.Index)
		if !still {
			foreign = append(foreign, u.Index)
		}
		if !was {
			warned = enforce.RuleEnvDevices
		}
	}
	return foreign, warned
}

func (j *judge) describe(h *judging.HostView, p *snapshot.Process, f *enforce.Finding) {
	f.ID = string(f.Rule) + "/" + processOn(h, p)
	f.Host, f.PID, f.EID, f.Command, f.Container = h.Name, p.PID, p.EID, p.CommandOrName(), p.Container
	f.PrivateCommand = p.PrivateCommand
	f.Instances = h.InstancesOf(p, f.Devices)
	f.ContainerInfo = p.ContainerInfo.WithoutLabels()
}

func processOn(h *judging.HostView, p *snapshot.Process) string {
	return string(h.Name) + "/" + strconv.FormatInt(int64(p.PID), 10) + "/" + strconv.FormatUint(uint64(p.Start), 10)
}

// maxKeys limits the remembered devices of a process: a host may make up many.
const maxKeys = 16

func (j *judge) endProcess(h *judging.HostView, p *snapshot.Process, settings *enforce.Settings, warn enforce.Warn,
	f enforce.Finding,
) {
	j.describe(h, p, &f)
	// A user can move a process between these rules in every cycle. So besides each rule's time there is a shared one
	// for the longest warning.
	own, shared := []string{f.ID}, []string{"process/" + processOn(h, p)}
	for _, owner := range j.ownersOf(h, p, &f) {
		use := "/" + string(h.Name) + "/" + owner
		own, shared = append(own, string(f.Rule)+use), append(shared, "use"+use)
	}
	longest := settings.LongestWarn().OrLonger(warn)
	if warn == longest {
		own = shared
	}
	due := j.CheckDue(h, &f, judging.NewWarning(warn, own...), judging.NewWarning(longest, shared...))
	j.End(&f, due, h, p)
	j.Add(f)
}

// ownersOf are the parts of keys that name a process's owner: a person's warning continues with any process of theirs.
// All unproved containers of an environment on a device share one.
func (j *judge) ownersOf(h *judging.HostView, p *snapshot.Process, f *enforce.Finding) (owners []string) {
	if !p.StartedByUnknown() {
		if user := cmp.Or(h.UserOf(p), f.User); user != "" {
			return []string{"user/" + string(user)}
		}
		return nil // the host reports only its PID
	}
	owner, devices := "unproved/", f.Devices
	if f.Rule == enforce.RuleEnvDevices {
		owner += string(p.EID) + "/"
	}
	if len(devices) == 0 {
		devices = p.Indices()
	}
	for _, index := range devices[:min(len(devices), maxKeys)] {
		owners = append(owners, owner+h.DeviceKey(index))
	}
	return owners
}

// processAge gives each process its own warning: another old process says nothing about it.
func (j *judge) processAge(h *judging.HostView) {
	for i := range h.Snapshot.Processes {
		p := &h.Snapshot.Processes[i]
		if h.Exempt[p.PID] || !h.Reports(p.Start) || p.EnvUnknown && !h.OutsideByPolicy(p) {
			continue
		}
		settings, age := h.Settings, h.At.Sub(h.Snapshot.When(p.Start, snapshot.Date{}))
		reported, uid := p.Reported()
		if user := cmp.Or(h.UserOf(p), reported); user != "" {
			settings = h.SettingsOf(user)
		}
		if settings.MaxProcessAge <= 0 || age <= settings.MaxProcessAge {
			continue
		}
		f := enforce.Finding{Rule: enforce.RuleMaxProcessAge, For: age, Limit: settings.MaxProcessAge}
		f.User, f.UID = reported, uid
		j.describe(h, p, &f)
		due := j.CheckDue(h, &f, judging.NewWarning(settings.WarnOf(f.Rule), f.ID))
		j.End(&f, due, h, p)
		j.Add(f)
	}
}
