package enforce

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/snapshot"
)

// caps takes devices from users who are over a cap: never more than the excess,
// and those first that cost the user least. Package holdings decides.
func (j *judgement) caps() {
	all := j.allocations()
	decision, excesses := holdings.DecideAlone(all.Shard, capRulesOf(j.policy, j.now))
	j.noteUncounted(all, all.Remaining())
	for i := range decision.Over {
		j.overCap(all, &decision.Over[i], &excesses[i], decision.Missing)
	}
	if len(all.inOrder) > 0 && decision.Missing > 0 { // without their number, so that it is the same note while some are missing
		j.notes = append(j.notes, Note{Text: "some hosts did not answer: devices there don't count toward per-user caps"})
	}
}

// capRulesOf are the rules of a policy at a moment, for deciding about the caps.
func capRulesOf(policy Policy, now time.Time) holdings.Rules {
	limits := func(user snapshot.Username) (l holdings.Limits) {
		if s := capSettings(policy, user, now); s != nil {
			l = s.caps()
		}
		return l
	}
	return holdings.Rules{Limits: limits, Pause: policy.Fleet().PauseCaps}
}

// capSettings are the settings of a user who has caps; nil for others.
func capSettings(policy Policy, user snapshot.Username, now time.Time) *Settings {
	if _, exempt := policy.Exempt(Subject{User: user}); exempt {
		return nil
	}
	s := policy.Settings(Query{User: user, At: now})
	if s.MaxDevices == nil && s.MaxMemory == nil && s.MaxEnvs == nil {
		return nil
	}
	return s
}

func (s *Settings) caps() holdings.Limits {
	return holdings.Limits{Envs: s.MaxEnvs, Devices: s.MaxDevices, Memory: s.MaxMemory}
}

// overCap adds a finding about a user who loses something.
func (j *judgement) overCap(all *allocations, over *holdings.Over, excess *holdings.Excess, missing int) {
	rule := capRules[over.Cap]
	f := Finding{Rule: rule, User: over.User, ID: capID(rule, over.User), HostsMissing: missing}
	f.Count = &CountExcess{Used: excess.Used.Count, Limit: int(over.Limit), Hosts: excess.Used.Hosts}
	if over.Cap == holdings.Memory {
		f.Count.Limit, f.Memory = 0, &MemoryExcess{UsedBytes: excess.Used.Bytes, CapacityBytes: over.Limit}
	}
	due := j.capDue(&f, all.of(over.User).settings.Warn)
	all.lose(&f, due, excess)
	j.add(f)
}

// capDue is checkDue for a cap, which knows of hosts that did not answer. Their
// devices do not count, so the user may be over by more, never by less; what
// costs least to lose may be there, though, so the policy can have caps wait.
func (j *judgement) capDue(f *Finding, warn Warn) (due bool) {
	due = j.checkDue(f, warn, f.ID)
	if !j.fleet.PauseCaps || f.HostsMissing == 0 {
		return due
	}
	f.Waits = fmt.Sprintf("%d of the hosts did not answer, and the policy says \"unreachable: hold\"", f.HostsMissing)
	f.Pending = true
	return false
}

// lose notes what a user loses.
func (all *allocations) lose(f *Finding, due bool, excess *holdings.Excess) {
	j, dealt := all.j, all.dealt
	clear(dealt)
	end := func(h *hostView, process int) { // those that are dealt with already are not named again
		if !dealt[process] {
			dealt[process] = true
			j.end(f, due, h, all.processes[process])
		}
	}
	for _, env := range excess.Envs {
		h := all.hosts[env.Host]
		for _, loss := range env.Loses {
			j.loseDevice(f, due, h, h.envs.Get(env.EID), loss.Device)
			for _, p := range loss.Processes {
				end(h, p)
			}
		}
	}
	for _, d := range excess.Devices {
		h := all.hosts[d.Host]
		for _, env := range d.Envs {
			j.loseDevice(f, due, h, h.envs.Get(env.EID), d.Index)
		}
		for _, use := range d.Processes {
			end(h, use.Process)
		}
	}
}

// capRules are the rules of the caps.
var capRules = [...]Rule{holdings.Envs: RuleMaxEnvsPerUser, holdings.Devices: RuleMaxDevicesPerUser, holdings.Memory: RuleMaxMemoryPerUser}

func capID(rule Rule, user snapshot.Username) string { return fmt.Sprintf("%s/%s", rule, user) }

// dueCaps are the caps of which the warning would be over if the user were found over them now.
func (j *judgement) dueCaps(u *allocation) (caps holdings.Caps) {
	for c, rule := range capRules {
		if _, capped := u.settings.caps().Of(holdings.Cap(c)); !capped {
			continue
		}
		if due, _ := j.presence(capID(rule, u.Name)).due(u.settings.Warn, j.now); due {
			caps = caps.With(holdings.Cap(c))
		}
	}
	return caps
}

// noteUncounted says which devices memory caps don't count.
func (j *judgement) noteUncounted(all *allocations, remaining *holdings.Remaining) {
	for _, u := range all.inOrder {
		if u.settings.MaxMemory == nil {
			continue
		}
		for _, d := range remaining.WithUnknownMemory(u.Name) {
			j.note(all.hosts[d.Host], "the memory of device %d is unknown, so memory caps don't count it", d.Index)
		}
	}
}
