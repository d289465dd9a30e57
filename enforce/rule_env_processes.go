package enforce

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// RuleNonEnvProcesses is about processes that are in no environment.
const RuleNonEnvProcesses Rule = order.RuleOutside

var nonEnvProcessesRule = rule{
	Setting: Setting{outsideSetting, ByHost},
	advice:  "End it, and start it in an environment: genv run --gpus 1 python train.py.",
	line:    func(f Finding) string { return order.OutsideLine(f.PID) },
}

// outsideSetting says what becomes of processes in no environment: they are left alone, count or are ended.
var outsideSetting = strictyaml.Setting[Settings]{
	Key: string(RuleNonEnvProcesses),
	Read: func(s *Settings, n *strictyaml.Node) {
		s.NonEnvProcesses, s.CountOutside = false, false
		if n.IsBool() {
			s.NonEnvProcesses = n.Bool()
			return
		}
		s.CountOutside = n.OneOf("true", "false", "count") == "count"
	},
	Text: func(s *Settings) string {
		switch {
		case s.NonEnvProcesses:
			return "on"
		case s.CountOutside:
			return "count"
		}
		return "off"
	},
	Copy: func(to, from *Settings) {
		to.NonEnvProcesses, to.CountOutside = from.NonEnvProcesses, from.CountOutside
	},
}

// nonEnvProcesses ends processes that are in no environment of this host. A
// claim alone is not enough, since anyone can set GENV_ENVIRONMENT_ID=bogus: the
// environment must be registered, and for the process's user (see snapshot.Environment.Admits).
func (j *judgement) nonEnvProcesses(h *hostView) {
	if !h.settings.NonEnvProcesses {
		return
	}
	for i := range h.snapshot.Processes {
		p := &h.snapshot.Processes[i]
		if h.exempt[p.PID] || h.in[i] != nil || p.EnvUnknown && !h.outsideByPolicy(p) {
			continue
		}
		f := Finding{Rule: RuleNonEnvProcesses}
		f.User, f.UID = p.Reported()
		settings := j.settingsReported(h, &f)
		j.endProcess(h, p, settings, settings.warnOf(f.Rule), f)
	}
}

// RuleUnreadable is about processes that can't be judged by the other rules.
const RuleUnreadable Rule = "unreadable-processes"

var unreadableRule = rule{
	Setting: Setting{strictyaml.NewChoice(string(RuleUnreadable), "end", "report",
		func(s *Settings) *bool { return &s.EndUnreadable }), ByHost},
	advice: "Start it without that file system, or with fewer environment variables.",
	line:   func(f Finding) string { return fmt.Sprintf("Process %d can't be judged: %s", f.PID, f.Unreadable.Why) },
}

// unreadable finds processes of which root can't find out within bounds whether they are in an environment. It ends
// those whose user has caused that, if the policy says so.
func (j *judgement) unreadable(h *hostView) {
	for i := range h.snapshot.Processes {
		p := &h.snapshot.Processes[i]
		if p.Unreadable == nil || !p.EnvUnknown || h.exempt[p.PID] || h.in[i] != nil || p.NodeMissing {
			continue
		}
		f := Finding{Rule: RuleUnreadable, Unreadable: p.Unreadable}
		f.User, f.UID = p.Reported()
		if h.settings.EndUnreadable && p.Unreadable.IsByUser() && p.Start != 0 && p.UID != nil && *p.UID != 0 {
			settings := j.settingsReported(h, &f)
			j.endProcess(h, p, settings, settings.warnOf(f.Rule), f)
			continue
		}
		j.describe(h, p, &f)
		j.checkDue(h, &f, clock{Warn{}, []string{f.ID}})
		j.add(f)
	}
}

// settingsReported are those of the user whom a finding names, or the host's.
func (j *judgement) settingsReported(h *hostView, f *Finding) *Settings {
	if f.User == "" {
		return h.settings
	}
	return h.ask(j.policy, f.User, j.now)
}

// RuleEnvDevices is about processes on devices to which their environment is not attached.
const RuleEnvDevices Rule = "env-devices"

var envDevicesRule = rule{
	Setting: Setting{
		strictyaml.NewSwitch(string(RuleEnvDevices), func(s *Settings) *bool { return &s.EnvDevices }),
		ByHost,
	},
	advice:    "Use only GPUs that are attached: genv gpus shows them, genv attach --index N attaches one.",
	adviceRun: "End it, and start it with as many GPUs as it uses: genv run --gpus N.",
	line: func(f Finding) string {
		return fmt.Sprintf("Process %d from environment %s is using non-attached GPU(s) %s", f.PID, f.EID,
			text.JoinIndices(f.Devices))
	},
}

// envDevices ends processes that use a device to which their environment is not
// attached.
func (j *judgement) envDevices(h *hostView) {
	if !h.settings.EnvDevices {
		return
	}
	for _, env := range h.inOrder {
		for _, p := range env.Processes {
			if foreign, rule := j.notAttached(h, env, p); len(foreign) > 0 {
				f := Finding{Rule: RuleEnvDevices, User: env.env.Username, UID: env.uid(), Devices: foreign}
				settings := env.settings
				if p.Unproved() {
					f.User, f.UID = p.Reported()
					settings = j.settingsReported(h, &f)
				}
				j.endProcess(h, p, settings, settings.warnOf(rule), f)
			}
		}
	}
}

// notAttached lists the devices that a process of the environment uses without an attachment, in the order in which the
// host named them, and the rule that has their warning: that of idle if all of them were released by it.
func (j *judgement) notAttached(h *hostView, env *envView, p *snapshot.Process) (foreign []snapshot.DeviceIndex,
	warned Rule,
) {
	warned = RuleIdle
	for _, u := range p.Usage {
		if env.Attached(u.Index) || h.ignoresUse(u) {
			continue
		}
		still, was := j.released(h, env, u.Index)
		if !still {
			foreign = append(foreign, u.Index)
		}
		if !was {
			warned = RuleEnvDevices
		}
	}
	return foreign, warned
}

// describe sets the ID of a finding, and what it says of its process.
func (j *judgement) describe(h *hostView, p *snapshot.Process, f *Finding) {
	f.ID = string(f.Rule) + "/" + processOn(h, p)
	f.Host, f.PID, f.EID, f.Command, f.Container = h.name, p.PID, p.EID, p.CommandOrName(), p.Container
	f.PrivateCommand = p.PrivateCommand
	f.Instances = h.instances.Of(p, f.Devices)
	f.ContainerInfo = p.ContainerInfo.WithoutLabels()
}

// processOn is a part of the IDs and keys of what is about a process.
func processOn(h *hostView, p *snapshot.Process) string {
	return string(h.name) + "/" + strconv.FormatInt(int64(p.PID), 10) + "/" + strconv.FormatUint(uint64(p.Start), 10)
}

// maxKeys is how many devices of a process are remembered: a host may make up many.
const maxKeys = 16

// endProcess is a finding about one process, which ends once it is due.
func (j *judgement) endProcess(h *hostView, p *snapshot.Process, settings *Settings, warn Warn, f Finding) {
	j.describe(h, p, &f)
	// A user can move a process from one of these rules to another in every cycle, by rewriting the state files or by
	// starting it again elsewhere. So each rule has its own clock, and a shared one with the longest warning goes on.
	own, shared := []string{f.ID}, []string{"process/" + processOn(h, p)}
	for _, whose := range j.ownersOf(h, p, &f) {
		use := "/" + string(h.name) + "/" + whose
		own, shared = append(own, string(f.Rule)+use), append(shared, "use"+use)
	}
	longest := settings.longestWarn()
	longest.Cycles, longest.For = max(longest.Cycles, warn.Cycles), max(longest.For, warn.For)
	if warn == longest {
		own = shared
	}
	due := j.checkDue(h, &f, clock{warn, own}, clock{longest, shared})
	j.end(&f, due, h, p)
	j.add(f)
}

// ownersOf are parts of the keys of whose process a finding is about: a person's warning goes on whatever of theirs it
// is about. Of unproved containers it isn't known whose they are: all of an environment on a device have one together.
func (j *judgement) ownersOf(h *hostView, p *snapshot.Process, f *Finding) (owners []string) {
	if !p.Unproved() {
		if user := cmp.Or(h.userOf(p), f.User); user != "" {
			return []string{"user/" + string(user)}
		}
		return nil // the host reports nothing about it but its PID
	}
	owner, devices := "unproved/", f.Devices
	if f.Rule == RuleEnvDevices {
		owner += string(p.EID) + "/"
	}
	if len(devices) == 0 {
		devices = p.Indices()
	}
	for _, index := range devices[:min(len(devices), maxKeys)] {
		owners = append(owners, owner+h.deviceKey(index))
	}
	return owners
}
